//! Tells whether this machine is the active one.

use std::io::{self, Write};
use std::time::Duration;

use rustix::system::uname;
use zklock::Contender;

use crate::args::{Args, Standby};
use crate::connect::connect;
use crate::failure::{Failure, written};
use crate::sanitize::plain;
use crate::table::who;

/// The exit status if another machine is active, or none.
const PASSIVE: u8 = 1;

pub(crate) fn status(args: &Args, standby: &Standby) -> Result<u8, Failure> {
    let client = connect(args, None, Duration::MAX)?;
    let contenders = client.contenders(&standby.path);
    drop(client.close());
    let contenders = contenders?;
    let holder = contenders.iter().find(|one| one.holds());
    let host = uname().nodename().to_string_lossy().into_owned();
    let is_here = |holder: &&Contender| holder.owner().host.as_deref() == Some(&host);
    let path = plain(&standby.path);
    let (said, code) = match holder {
        None => (format!("no machine is active for {path}"), PASSIVE),
        Some(holder) if is_here(&holder) => {
            let name = who(holder.owner());
            (format!("this machine is active for {path}: {name}"), 0)
        }
        Some(holder) => {
            let name = who(holder.owner());
            (
                format!("another machine is active for {path}: {name}"),
                PASSIVE,
            )
        }
    };
    written(writeln!(io::stdout(), "{said}"))?;
    Ok(code)
}
