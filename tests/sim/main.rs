//! The simulator from outside: its command, and the evidence for what it claims.

mod command;
