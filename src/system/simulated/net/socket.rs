//! The sockets of the simulated network, as the rest of the client sees them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::connection::Stage;
use super::network::Network;
use crate::system::simulated::clock;
use crate::system::simulated::scheduler::{Here, here, try_here};
use crate::system::simulated::state::{Key, text_of};
use crate::system::simulated::thread;

/// The port of every server.
const PORT: u16 = 2181;

/// Installs the network of the calling thread's run.
pub fn build(network: Network) {
    here().state().outside = Some(Box::new(network));
}

/// Runs a function on the network, with the current time.
pub fn network<R>(run: impl FnOnce(&mut Network, u64) -> R) -> R {
    with(&here(), run)
}

/// Runs a function on the network, and wakes the threads that the change concerns.
fn with<R>(here: &Here, run: impl FnOnce(&mut Network, u64) -> R) -> R {
    let mut state = here.state();
    let now = state.now;
    let mut outside = state.outside.take().expect("a network");
    let network = outside.as_any().downcast_mut().expect("a network");
    let result = catch_unwind(AssertUnwindSafe(|| run(network, now)));
    if let Err(panic) = &result {
        let reason = format!("the servers panicked: {}", text_of(&**panic));
        state.failure.get_or_insert(reason);
    }
    for key in outside.take_woken() {
        state.wake(key);
    }
    state.outside = Some(outside);
    drop(state);
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The client's side of a connection.
#[derive(Debug)]
pub(crate) struct TcpStream {
    id: u64,
    key: Key,
    read_limit: Mutex<Option<Duration>>,
    write_limit: Mutex<Option<Duration>>,
}

/// See the real side.
pub(crate) fn connect(address: &SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let here = here();
    here.step();
    let SocketAddr::V4(address) = address else {
        return Err(ErrorKind::AddrNotAvailable.into());
    };
    let server = usize::from(address.ip().octets()[3]) - 1;
    let process = here.state().tasks[here.me].process;
    let id = with(&here, |network, now| network.open(process, server, now));
    let (_, key) = with(&here, |network, _| network.stage(id));
    let stream = TcpStream {
        id,
        key,
        read_limit: Mutex::default(),
        write_limit: Mutex::default(),
    };
    let until = clock::after(&here, limit);
    let stage = here.wait(&[key], Some(until), "for a connection", || {
        let (stage, _) = with(&here, |network, _| network.stage(id));
        (stage != Stage::Connecting).then_some(stage)
    });
    match stage {
        Some(Stage::Connected) => Ok(stream),
        Some(_) => Err(ErrorKind::ConnectionRefused.into()),
        None => Err(io::Error::new(ErrorKind::TimedOut, "connection timed out")),
    }
}

/// See the real side. The servers' names are `zk1`, `zk2` and so on.
pub(crate) fn resolve(host: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
    let here = here();
    let slow = with(&here, |network, _| network.takes_for_a_name());
    if !slow.is_zero() {
        thread::sleep(slow);
    }
    let unknown = || io::Error::new(ErrorKind::NotFound, "no such name");
    if with(&here, |network, _| network.is_unknown(host)) {
        return Err(unknown());
    }
    let number: u8 = host
        .strip_prefix("zk")
        .and_then(|number| number.parse().ok())
        .ok_or_else(unknown)?;
    Ok(vec![SocketAddr::from((
        Ipv4Addr::new(10, 0, 0, number),
        PORT,
    ))])
}

impl TcpStream {
    pub(crate) fn set_nodelay(&self, _on: bool) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        *self
            .read_limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = limit;
        Ok(())
    }

    pub(crate) fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        *self
            .write_limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = limit;
        Ok(())
    }

    pub(crate) fn shutdown(&self, _how: Shutdown) -> io::Result<()> {
        let here = here();
        with(&here, |network, now| network.shut(self.id, now));
        here.step();
        Ok(())
    }

    fn wait<R>(
        &self,
        limit: &Mutex<Option<Duration>>,
        what: &'static str,
        mut attempt: impl FnMut(&mut Network, u64) -> Option<io::Result<R>>,
    ) -> io::Result<R> {
        let here = here();
        here.step();
        let limit = *limit.lock().unwrap_or_else(PoisonError::into_inner);
        let until = limit.map(|limit| clock::after(&here, limit));
        let done = here.wait(&[self.key], until, what, || with(&here, &mut attempt));
        done.unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))
    }
}

impl Read for &TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait(&self.read_limit, "for bytes", |network, _| {
            network.read(self.id, into)
        })
    }
}

impl Write for &TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(&self.write_limit, "to write", |network, now| {
            network.write(self.id, bytes, now)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        if let Some(here) = try_here() {
            with(&here, |network, now| network.drop_it(self.id, now));
        }
    }
}
