//! The commands: a file each, which performs what `args` has read.

mod check;
mod completions;
mod doctor;
mod forget;
mod hold;
mod job_path;
mod last;
mod list;
mod once;
mod overview;
mod pause;
mod release;
mod revoke;
mod run;
mod serve;
mod standby;
mod standby_status;
mod why;

use std::io::{self, Write};
use std::path::Path;

use crate::args::{Args, Task};
use crate::command_line;
use crate::connect::with_client;
use crate::exit::Ending;
use crate::failure::Failure;

pub(crate) fn perform(args: &Args) -> Result<Ending, Failure> {
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
fn man(folder: Option<&Path>) -> Result<u8, Failure> {
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
