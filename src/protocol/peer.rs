//! A peer: a command that speaks the protocol. It is started when first needed and again after it died, a few times.

use super::connection::{Connection, Deadlines};
use super::message::{Answer, Hello, Request};
use super::misconduct::Misconduct;
use super::process::CommandLine;
use crate::device::fault::Fault;
use std::cell::RefCell;

/// How often a peer is started in one run: a crash costs the case that it happened in, a peer that always crashes does
/// not cost the whole run its time.
const MOST_STARTS: u64 = 8;

/// A peer, whether or not it came.
pub struct Peer {
    command: CommandLine,
    deadlines: Deadlines,
    hello: Result<Hello, Misconduct>,
    state: RefCell<State>,
}

struct State {
    connection: Option<Connection>,
    /// How often it was started; cases of an earlier life are gone.
    lives: u64,
    /// How many cases it was given.
    cases: u64,
    /// Why there is no connection.
    end: Option<Misconduct>,
}

/// One life of a peer: what it was given then, it knows only then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Life(u64);

impl Peer {
    /// Starts it and hears its hello.
    pub fn start(command: CommandLine, deadlines: Deadlines) -> Self {
        let (hello, connection, end) = match Connection::open(&command, deadlines) {
            Ok(connection) => (Ok(connection.hello.clone()), Some(connection), None),
            Err(end) => (Err(end.clone()), None, Some(end)),
        };
        Peer { command, deadlines, hello, state: RefCell::new(State { connection, lives: 1, cases: 0, end }) }
    }

    /// What it said first.
    ///
    /// # Errors
    /// What it did instead.
    pub fn hello(&self) -> Result<&Hello, &Misconduct> {
        self.hello.as_ref()
    }

    /// The name that it gave itself; of one that did not come, the program.
    pub fn name(&self) -> String {
        let program = || self.command.words[0].to_string_lossy().into_owned();
        self.hello.as_ref().map_or_else(|_| program(), |hello| hello.name.clone())
    }

    /// Ends it in peace.
    pub fn close(self) {
        if let Some(connection) = self.state.into_inner().connection {
            connection.close();
        }
    }

    /// A number for a new case, in a life that has begun.
    pub(super) fn new_case(&self) -> Result<(Life, u64), Fault> {
        let mut state = self.state.borrow_mut();
        if state.connection.is_none() {
            if state.lives >= MOST_STARTS {
                let last = state.end.as_ref().map_or_else(String::new, |end| format!("; the last time it {end}"));
                return Err(Fault::Peer(format!("was started {MOST_STARTS} times and ended each time{last}")));
            }
            state.lives += 1;
            match Connection::open(&self.command, self.deadlines) {
                Ok(connection) => state.connection = Some(connection),
                Err(end) => return Err(state.ended(end)),
            }
        }
        state.cases += 1;
        Ok((Life(state.lives), state.cases))
    }

    /// Asks in a life that may have ended.
    pub(super) fn ask(&self, life: Life, request: Request) -> Result<Answer, Fault> {
        let mut state = self.state.borrow_mut();
        let is_this_life = life == Life(state.lives);
        let Some(connection) = state.connection.as_mut().filter(|_| is_this_life) else {
            let why = state.end.as_ref().map_or_else(String::new, ToString::to_string);
            return Err(Fault::Peer(format!("is gone: it {why}")));
        };
        connection.ask(request).map_err(|end| state.ended(end))
    }

    /// Ends this life for a reason: whoever lied once is not asked again.
    pub(super) fn end(&self, end: Misconduct) -> Fault {
        self.state.borrow_mut().ended(end)
    }
}

impl State {
    fn ended(&mut self, end: Misconduct) -> Fault {
        self.connection = None;
        let fault = Fault::Peer(end.to_string());
        self.end = Some(end);
        fault
    }
}
