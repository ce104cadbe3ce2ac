//! What is left of a run's time: kept in this process, or in a file that all processes of one run share.
//!
//! nextest runs one process a trial. Without the file each of them would take the whole run's time for its own.

use crate::measure::lock::{self, Kind};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// An account that nobody has used for so long is of an earlier run that had the same id.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// How long another process may take to read and write the account.
const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// Time that is left and those who wait for it.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Account {
    /// When the run should have ended.
    pub end: SystemTime,
    /// The weights of the trials that have not started.
    pub waiting: f64,
}

/// Where an account is kept.
pub enum Ledger {
    /// In this process.
    Here(Mutex<Account>),
    /// In a file.
    Shared {
        /// The file, locked while it is read and written.
        file: PathBuf,
        /// The run that the account is of.
        run: String,
        /// The account of a run that has none yet.
        opened: Account,
    },
}

/// What the file holds.
#[derive(Serialize, Deserialize)]
struct Page {
    run: String,
    account: Account,
    /// When a trial last asked.
    used: SystemTime,
}

impl Page {
    fn is_of(&self, run: &str) -> bool {
        self.run == run && self.used.elapsed().is_ok_and(|idle| idle < ABANDONED_AFTER)
    }
}

impl Ledger {
    /// An account of this process.
    pub fn here(opened: Account) -> Self {
        Ledger::Here(Mutex::new(opened))
    }

    /// The account of `run` in `file`.
    pub fn shared(file: &Path, run: String, opened: Account) -> Self {
        Ledger::Shared { file: file.to_owned(), run, opened }
    }

    /// Reads and changes the account; nobody else does meanwhile. Where the file cannot be used, the trial is treated as
    /// the first of its run: its share is small, and nothing fails for want of a budget.
    pub fn with<T>(&self, change: impl Fn(&mut Account) -> T) -> T {
        match self {
            Ledger::Here(account) => change(&mut account.lock().unwrap_or_else(PoisonError::into_inner)),
            Ledger::Shared { file, run, opened } => {
                let kept = change_file(file, run, *opened, &change);
                kept.unwrap_or_else(|_| change(&mut opened.clone()))
            }
        }
    }
}

fn change_file<T>(path: &Path, run: &str, opened: Account, change: impl Fn(&mut Account) -> T) -> io::Result<T> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    lock::wait(&file, Kind::Exclusive, LOCK_LIMIT)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    // A page of another run, or one that cannot be read, is replaced.
    let kept = serde_json::from_str::<Page>(&text).ok().filter(|page| page.is_of(run));
    let mut account = kept.map_or(opened, |page| page.account);
    let result = change(&mut account);
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(serde_json::to_string(&Page { run: run.into(), account, used: SystemTime::now() })?.as_bytes())?;
    Ok(result)
}
