//! The program `zklock`, used as a user uses it.

mod commands;
mod first_mistakes;
mod lost;
mod program;
mod signals;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod usage;
