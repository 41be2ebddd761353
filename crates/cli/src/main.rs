//! flock(1) for a cluster: runs a command while it holds a lock on ZooKeeper.
//!
//! | File | What it does |
//! |---|---|
//! | `args`, `connect` | reads the command line, connects |
//! | `bad_arguments`, `failure`, `stderr`, `sanitize` | tells the user what happens |
//! | `run`, `supervisor` | acquires a lock, runs the command, stops it in time |
//! | `wanted`, `acquire`, `status_line`, `outage` | waits for a lock |
//! | `stop_policy` | decides when a suspect lock stops the command |
//! | `child`, `descendants`, `helper`, `terminal_listener` | processes |
//! | `signals`, `terminal`, `exit` | passes signals on |
//! | `once`, `state_files`, `standby`, `run_setup` | the same for a job, and for one active process |
//! | `announce`, `standby_status` | tells whether this machine is the active one |
//! | `metrics` | numbers about the command in a file |
//! | `hold`, `pause`, `release`, `point_in_time` | a lock without a process |
//! | `list`, `overview`, `why`, `doctor`, `table`, `last`, `forget`, `revoke`, `serve` | the other commands |
//!
//! It uses the library as any other program does.

#[cfg(not(unix))]
compile_error!("the feature `cli` needs a Unix system");

mod acquire;
mod announce;
mod args;
mod bad_arguments;
mod check;
mod child;
mod command_line;
mod completions;
mod connect;
mod descendants;
mod doctor;
mod exit;
mod failure;
mod forget;
mod held;
mod held_lock;
mod helper;
mod hold;
mod last;
mod list;
mod metrics;
mod once;
mod other_kinds;
mod outage;
mod overview;
mod pause;
mod point_in_time;
mod refused_attempts;
mod release;
mod revoke;
mod run;
mod run_setup;
mod sanitize;
mod serve;
mod signals;
mod standby;
mod standby_status;
mod state_files;
mod status_line;
mod stderr;
mod stop_policy;
mod supervisor;
mod table;
mod terminal;
mod terminal_listener;
mod values;
mod wanted;
mod why;

use std::io::{self, Write};
use std::panic;
use std::process::ExitCode;

use crate::args::{Args, Task};
use crate::connect::with_client;
use crate::exit::Ending;
use crate::failure::Failure;

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
    match perform(&args) {
        Ok(ending) => ending.end(),
        Err(failure) => failure.report(),
    }
}

fn perform(args: &Args) -> Result<Ending, Failure> {
    let code = match &args.task {
        Task::Run(run) => return run::run(args, run),
        Task::Once(once) => return once::once(args, once),
        Task::Standby(standby) if standby.status => {
            with_client(args, |client| standby_status::status(client, standby))
        }
        Task::Standby(standby) => return standby::standby(args, standby),
        Task::Hold(wanted) => return hold::hold(args, wanted),
        Task::Last(last) => with_client(args, |client| last::last(client, last)),
        Task::Forget(forget) => with_client(args, |client| forget::forget(client, forget)),
        Task::List(list) if list.recursive => {
            with_client(args, |client| overview::overview(client, list))
        }
        Task::List(list) => list::list(args, list),
        Task::Doctor(doctor) => doctor::doctor(args, doctor),
        Task::Why(why) => with_client(args, |client| why::why(client, why)),
        Task::Revoke(revoke) => with_client(args, |client| revoke::revoke(client, revoke)),
        Task::Release(release) | Task::Resume(release) => {
            with_client(args, |client| release::release(client, release))
        }
        Task::Pause(pause) => with_client(args, |client| pause::pause(client, pause)),
        Task::Check(check) => with_client(args, |client| check::check(client, check)),
        Task::Serve(serve) => serve::serve(serve),
        Task::Completions { shell } => completions::write(*shell),
        Task::Paths { beginning } => {
            completions::paths(args, beginning);
            Ok(0)
        }
        Task::Man { folder } => man(folder.as_deref()),
    };
    code.map(Ending::Code)
}

/// Writes the manual page, or one for each command into a folder.
fn man(folder: Option<&std::path::Path>) -> Result<u8, Failure> {
    let written = match folder {
        Some(folder) => clap_mangen::generate_to(command_line::in_the_manual(), folder),
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command_line::in_the_manual())
                .render(&mut page)
                .and_then(|()| io::stdout().write_all(&page))
        }
    };
    // The reader may have closed the pipe.
    let written = written.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    });
    written.map_err(|error| {
        let place = folder.map(|folder| format!(" into {}", folder.display()));
        let place = place.unwrap_or_default();
        Failure::other(format!("cannot write the manual page{place}: {error}"))
    })?;
    Ok(0)
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
