//! How the command line is read.

use std::env;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Command, CommandFactory, FromArgMatches};

use crate::args::{Args, SERVERS};

/// The commands that contact no server.
const WITHOUT_SERVERS: [&str; 3] = ["serve", "completions", "man"];

/// Returns the command line. Commands that contact no server have no options for servers.
pub(crate) fn command() -> Command {
    finished(Args::command())
}

/// Like [`command`], without the command `help`, which needs no page.
pub(crate) fn in_the_manual() -> Command {
    finished(Args::command().disable_help_subcommand(true))
}

fn finished(command: Command) -> Command {
    // With `--status`, no command is needed.
    let mut command = command.mut_subcommand("standby", |task| {
        task.mut_arg("command", |arg| {
            arg.required(false).required_unless_present("status")
        })
    });
    // The options that belong to all commands exist only after this.
    command.build();
    for task in WITHOUT_SERVERS {
        command = command.mut_subcommand(task, |task| {
            task.mut_args(|arg| match arg.get_help_heading() {
                Some(SERVERS) => arg.hide(true),
                _ => arg,
            })
        });
    }
    command
}

/// Reads the arguments of this process.
pub(crate) fn parse() -> Result<Args, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(env::args_os())?;
    match matches.subcommand() {
        Some((task, given)) if WITHOUT_SERVERS.contains(&task) => {
            let needless = command.get_arguments().find(|arg| {
                arg.get_help_heading() == Some(SERVERS)
                    && given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
            });
            match needless.and_then(|arg| arg.get_long()) {
                Some(option) => {
                    let what = format!("zklock {task} asks no server: leave --{option} out");
                    Err(command.error(ErrorKind::ArgumentConflict, what))
                }
                None => Args::from_arg_matches(&matches),
            }
        }
        _ => Args::from_arg_matches(&matches),
    }
}
