//! The messages for arguments that cannot be used.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Error;
use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::command_line;
use crate::failure::{Failure, USAGE, written};

/// The most characters of a message, which repeats what the user wrote.
const LONGEST: usize = 1_000;

/// Prints help and versions, or says in one line what is wrong.
pub(crate) fn tell(error: &Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        let printed = error.print().and_then(|()| io::stdout().flush());
        return match written(printed) {
            Err(failure) if !error.use_stderr() => failure.report(),
            _ => ExitCode::from(if error.use_stderr() { USAGE } else { 0 }),
        };
    }
    let task = task();
    let runs = |task: &&str| ["run", "once", "standby"].contains(task);
    let of_run = task
        .as_deref()
        .filter(runs)
        .and_then(|task| of_run(task, error));
    let said = of_run
        .or_else(|| lacks_tls(error))
        .or_else(|| of_list(task.as_deref(), error))
        .or_else(|| lacks_task(error))
        .or_else(|| lacks_argument(task.as_deref()?, error));
    let said = said.unwrap_or_else(|| in_one_line(&error.render().to_string()));
    let said = match said.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} ..", &said[..end]),
        None => said,
    };
    let help = task.map(|task| format!("{task} ")).unwrap_or_default();
    Failure::usage(format!("{said}; see zklock {help}--help")).report()
}

/// Returns the subcommand that the user named.
fn task() -> Option<String> {
    let command = command_line::command();
    let known = |arg: &OsString| command.find_subcommand(arg).is_some();
    env::args_os().skip(1).find(known)?.into_string().ok()
}

/// Returns the message for a user who writes as for flock(1), if this one does.
fn of_run(task: &str, error: &Error) -> Option<String> {
    let dashes = env::args_os().any(|arg| arg == "--");
    match (error.kind(), error.get(ContextKind::InvalidArg)?) {
        (ErrorKind::MissingRequiredArgument, ContextValue::Strings(missing)) => missing
            .iter()
            .any(|arg| arg.contains("COMMAND"))
            .then(|| format!("no command: write zklock {task} PATH -- COMMAND")),
        (ErrorKind::UnknownArgument, ContextValue::String(word)) if word == "-c" => {
            Some("write -- sh -c before a line for the shell".to_owned())
        }
        (ErrorKind::UnknownArgument, ContextValue::String(word))
            if task == "once" && ["--cursor", "--state"].contains(&word.as_str()) =>
        {
            Some(format!(
                "{word} is no option: what the command writes to the file named by $ZKLOCK_STATE_OUT, the next one reads from $ZKLOCK_STATE_IN"
            ))
        }
        (ErrorKind::UnknownArgument, ContextValue::String(word)) if whose(word).is_some() => {
            let other = whose(word).unwrap_or_default();
            Some(format!(
                "{word} is an option of zklock {other}, not of {task}"
            ))
        }
        // A word that looks like a second path may be the command.
        (ErrorKind::ValueValidation, ContextValue::String(arg)) if arg.contains("[PATH]") => {
            let ContextValue::String(word) = error.get(ContextKind::InvalidValue)? else {
                return None;
            };
            let mut before = env::args().take_while(|arg| arg != word);
            (!dashes && before.any(|arg| arg.starts_with('/'))).then(|| dashless(task, word))
        }
        (ErrorKind::UnknownArgument, ContextValue::String(word)) if !word.starts_with('-') => {
            Some(match dashes {
                true => format!("{word} is one too many: there is one lock, and then -- COMMAND"),
                false => dashless(task, word),
            })
        }
        _ => None,
    }
}

fn dashless(task: &str, word: &str) -> String {
    format!("write -- before the command: zklock {task} PATH -- {word} ..")
}

/// Returns the subcommand that has this option.
fn whose(option: &str) -> Option<String> {
    let name = option.strip_prefix("--")?;
    let has_it =
        |task: &&clap::Command| task.get_arguments().any(|arg| arg.get_long() == Some(name));
    let command = command_line::command();
    let task = command.get_subcommands().find(has_it);
    task.map(|task| task.get_name().to_owned())
}

/// Returns the message that the user must name the lock to list, or list all.
fn of_list(task: Option<&str>, error: &Error) -> Option<String> {
    if error.kind() != ErrorKind::MissingRequiredArgument || task != Some("list") {
        return None;
    }
    let ContextValue::Strings(missing) = error.get(ContextKind::InvalidArg)? else {
        return None;
    };
    let lacks = |name: &str| missing.iter().any(|arg| arg.contains(name));
    if lacks("--recursive") {
        let options = "--held, --waiting, --older-than and --host are for -r, which lists all locks below a path: add -r";
        return Some(options.to_owned());
    }
    lacks("PATH").then(|| "which lock? name its path, or say -r for all of them".to_owned())
}

/// Returns the message for a user who names no subcommand, instead of a list of all of them.
fn lacks_task(error: &Error) -> Option<String> {
    let lacks = error.kind() == ErrorKind::MissingSubcommand;
    lacks.then(|| "say what to do, such as zklock run PATH -- COMMAND".to_owned())
}

/// Returns the message that says which argument is missing.
fn lacks_argument(task: &str, error: &Error) -> Option<String> {
    match (error.kind(), error.get(ContextKind::InvalidArg)?) {
        (ErrorKind::MissingRequiredArgument, ContextValue::Strings(missing)) => {
            let missing: Vec<_> = missing.iter().map(|arg| in_words(arg)).collect();
            Some(format!("zklock {task} lacks {}", missing.join(", and ")))
        }
        _ => None,
    }
}

/// Returns an argument, or the several of which one is needed, which the parser puts into brackets.
fn in_words(missing: &str) -> String {
    let several = missing
        .strip_prefix('<')
        .and_then(|inner| inner.strip_suffix('>'))
        .filter(|inner| inner.contains('|'));
    several.map_or_else(|| missing.to_owned(), |args| args.replace('|', " or "))
}

/// Returns a message if the user asks for a feature that this program was built without.
fn lacks_tls(error: &Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let unknown = !cfg!(feature = "tls") && error.kind() == ErrorKind::UnknownArgument;
    (unknown && word.starts_with("--tls"))
        .then(|| "this zklock was built without TLS: build it with --features tls".to_owned())
}

/// Returns the parser's message, which has several lines, without usage and help.
fn in_one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut said = String::new();
    // An argument that looks like an option is a misspelt one, and not a value.
    let lines = lines.filter(|line| !line.starts_with("tip: to pass"));
    for line in
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
    {
        said += match (said.is_empty(), line.starts_with("tip:")) {
            (true, _) => "",
            (false, true) => "; ",
            (false, false) => " ",
        };
        said += line;
    }
    said.strip_prefix("error: ").unwrap_or(&said).to_owned()
}
