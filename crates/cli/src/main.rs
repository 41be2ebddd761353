//! flock(1) for a cluster: runs a command while it holds a lock on ZooKeeper.
//!
//! | File | What it does |
//! |---|---|
//! | `args`, `connect` | reads the command line, connects |
//! | `bad_arguments`, `failure`, `stderr`, `sanitize` | tells the user what happens |
//! | `commands` | what each command of `zklock` does: `run`, `once`, `standby`, `doctor` and so on |
//! | `supervisor` | runs a command while it holds a lock, and stops it in time |
//! | `wanted`, `wait_limit`, `acquire`, `other_kinds`, `status_line`, `outage` | waits for a lock |
//! | `stop_policy` | decides when a suspect lock stops the command |
//! | `child`, `descendants`, `helper`, `terminal_listener` | processes |
//! | `signals`, `terminal`, `exit` | passes signals on |
//! | `run_setup`, `state_files` | what `run`, `once` and `standby` share, and the files of a job's state |
//! | `announce` | tells whether this machine is the active one |
//! | `metrics` | numbers about the command in a file |
//! | `point_in_time`, `table` | times that are given, and contenders that are shown |
//!
//! It uses the library as any other program does, and the core for what names and records of nodes mean.

#[cfg(not(unix))]
compile_error!("zklock-cli needs a Unix system");

mod acquire;
mod announce;
mod args;
mod bad_arguments;
mod child;
mod command_line;
mod commands;
mod connect;
mod descendants;
mod exit;
mod failure;
mod held;
mod held_lock;
mod helper;
mod metrics;
mod other_kinds;
mod outage;
mod point_in_time;
mod refused_attempts;
mod run_setup;
mod sanitize;
mod signals;
mod state_files;
mod status_line;
mod stderr;
mod stop_policy;
mod supervisor;
mod table;
mod terminal;
mod terminal_listener;
mod values;
mod wait_limit;
mod wanted;

use std::panic;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = helper::entry::main() {
        return code;
    }
    let args = match command_line::parse() {
        Ok(args) => args,
        Err(error) => return bad_arguments::tell(&error),
    };
    log_to_stderr(args.verbose);
    // The default hook could block on stderr while the command continues.
    panic::set_hook(Box::new(|fault| stderr::say(&fault.to_string())));
    match commands::perform(&args) {
        Ok(ending) => ending.end(),
        Err(failure) => failure.report(),
    }
}

fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => log::LevelFilter::Info,
        2 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    };
    stderr::log(level);
}
