//! Tells whether this machine is the active one.

use std::io::{self, Write};

use rustix::system::uname;
use zklock::{Client, Contender, Role};

use crate::args::Standby;
use crate::failure::{CONFIG, Failure, written};
use crate::sanitize::plain;
use crate::table::who;

/// The exit status if another machine is active, or none.
const PASSIVE: u8 = 1;

pub(crate) fn status(client: &Client, standby: &Standby) -> Result<u8, Failure> {
    let contenders = client.contenders(&standby.path)?;
    let path = plain(&standby.path);
    if contenders.iter().any(|one| one.role() == Role::Permit) {
        let message = format!("{path} is a semaphore's, for which no standby stands in line");
        return Err(Failure::new(CONFIG, message));
    }
    // Those who share the lock keep a standby from it, and are none.
    let is_one = |one: &&Contender| one.holds() && one.role() != Role::Read;
    let holder = contenders.iter().find(is_one);
    let host = uname().nodename().to_string_lossy().into_owned();
    let is_here = |holder: &&Contender| holder.owner().host.as_deref() == Some(&host);
    let named = |holder: &Contender| who(holder.owner());
    let (said, code) = match (holder, holder.and_then(Contender::hold)) {
        (None, _) => (format!("no machine is active for {path}"), PASSIVE),
        (_, Some(hold)) => {
            let hold = plain(&hold.to_string());
            (format!("no machine is active for {path}: {hold}"), PASSIVE)
        }
        (Some(holder), _) if is_here(&holder) => {
            let said = format!("this machine is active for {path}: {}", named(holder));
            (said, 0)
        }
        (Some(holder), _) => {
            let said = format!("another machine is active for {path}: {}", named(holder));
            (said, PASSIVE)
        }
    };
    written(writeln!(io::stdout(), "{said}"))?;
    Ok(code)
}
