//! Lists who holds a lock and who waits for it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use zklock::Contender;

use crate::args::{Args, List};
use crate::connect::connect;
use crate::failure::Failure;
use crate::table::{json, plain, table};

/// On a terminal the times go on while nothing else changes; no server is asked for it.
const REDRAW: Duration = Duration::from_secs(1);

/// Moves the cursor to the corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(crate) fn list(args: &Args, list: &List) -> Result<u8, Failure> {
    let client = connect(args, None, Duration::MAX)?;
    let mut present = client.contenders(&list.path)?;
    let screen = list.watch && !list.json && io::stdout().is_terminal();
    if show(list, &present, screen).is_err() || !list.watch {
        // Whoever read it has seen enough.
        drop(client.close());
        return Ok(0);
    }
    let limit = if screen { REDRAW } else { Duration::MAX };
    loop {
        let now = client.contenders_changed(&list.path, &present, limit)?;
        let news = !same(&now, &present);
        present = now;
        if (screen || news) && show(list, &present, screen).is_err() {
            drop(client.close());
            return Ok(0);
        }
    }
}

fn show(list: &List, present: &[Contender], screen: bool) -> io::Result<()> {
    let mut to = io::stdout().lock();
    let path = plain(&list.path);
    if list.json {
        let value = json(&list.path, present);
        return match list.watch {
            true => writeln!(to, "{value}"),
            false => writeln!(to, "{value:#}"),
        };
    }
    if screen {
        write!(to, "{CLEAR}")?;
    }
    match present {
        [] => writeln!(to, "nobody holds {path} or waits for it")?,
        present => writeln!(to, "{}", table(present))?,
    }
    if list.watch && !screen {
        writeln!(to)?;
    }
    to.flush()
}

fn same(one: &[Contender], other: &[Contender]) -> bool {
    let key = |one: &Contender| (one.node().to_owned(), one.token());
    one.iter().map(key).eq(other.iter().map(key))
}
