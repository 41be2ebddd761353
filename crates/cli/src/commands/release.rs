//! Ends a hold.

use std::io::{self, Write};

use zklock::Client;

use crate::args::Release;
use crate::failure::{Failure, written};
use crate::sanitize::plain;
use crate::stderr::say;
use crate::table::{named, who};

/// The exit status if there is no hold.
const NONE: u8 = 1;

pub(crate) fn release(client: &Client, release: &Release) -> Result<u8, Failure> {
    let (present, path) = (client.contenders(&release.path)?, plain(&release.path));
    let mut holds = present.iter().filter(|one| one.hold().is_some());
    let Some(first) = holds.next() else {
        let holder = present.iter().find(|one| one.holds());
        let holder = holder.map(|one| {
            let who = who(one.owner());
            format!(", and held by {who}, whom zklock revoke asks to let go")
        });
        let holder = holder.unwrap_or_default();
        say(&format!("{path} is not on hold{holder}"));
        return Ok(NONE);
    };
    first.evict()?;
    // The hold is gone, whether this client may delete the directory that it leaves or not.
    if let Err(error) = client.tidy_after_hold(&release.path) {
        log::info!("{path} stays, though nobody has used it: {error}");
    }
    written(writeln!(
        io::stdout(),
        "{path} was {}: released",
        named(first)
    ))?;
    if let Some(next) = holds.next() {
        say(&format!("{path} has another: {}", named(next)));
    }
    Ok(0)
}
