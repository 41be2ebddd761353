//! Connections to the server that the URL names, at any of its addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use ::mysql::DriverError::{ConnectTimeout, CouldNotConnect};
use ::mysql::{Conn, Error, Opts, OptsBuilder, Result};

/// Any address of this machine, of each kind.
const OWN: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    IpAddr::V6(Ipv6Addr::UNSPECIFIED),
];

/// After this many seconds without data, the system asks whether the server is still there. A
/// firewall may forget a silent connection, and drop what is sent on it later without a word.
const KEEP_ALIVE: u32 = 10;

/// Connects to an address that accepts the connection; limits every wait on it.
pub(super) fn connect(opts: &Opts, limit: Duration) -> Result<Conn> {
    let addresses = addresses(opts)?;
    // The first address may be tried twice.
    let tries = match addresses.len() {
        0 | 1 => 1,
        several => 1 + u32::try_from(several).unwrap_or(u32::MAX - 1),
    };
    let opts = with_timeouts(opts, limit, limit / tries);
    let first = Conn::new(opts.clone());
    if tries == 1 || !is_not_there(&first) {
        return first;
    }
    // The driver tries only the first address of a name, unless it binds the connection to an
    // address of this machine: then it tries all of that kind.
    let kinds = OWN.iter().filter(|own| {
        let mut addresses = addresses.iter();
        addresses.any(|address| address.is_ipv4() == own.is_ipv4())
    });
    let others = kinds.map(|own| {
        let own = SocketAddr::new(*own, 0);
        Conn::new(OptsBuilder::from_opts(opts.clone()).bind_address(Some(own)))
    });
    let found = others.into_iter().find(|conn| !is_not_there(conn));
    found.unwrap_or(first)
}

/// Returns the addresses that the driver might try; none if the URL names a socket, or the address
/// to connect from.
fn addresses(opts: &Opts) -> Result<Vec<SocketAddr>> {
    if opts.get_socket().is_some() || opts.bind_address().is_some() {
        return Ok(Vec::new());
    }
    let (host, port) = (opts.get_ip_or_hostname(), opts.get_tcp_port());
    let found = (host.trim_matches(['[', ']']), port).to_socket_addrs();
    // This is how the driver puts it. It would wait for the same answer once more.
    let failed = |error: io::Error| {
        let server = format!("{host}:{port}");
        CouldNotConnect(Some((server, error.to_string(), error.kind())))
    };
    Ok(found.map_err(failed)?.collect())
}

fn is_not_there(conn: &Result<Conn>) -> bool {
    let error = conn.as_ref().err();
    matches!(
        error,
        Some(Error::DriverError(CouldNotConnect(_) | ConnectTimeout))
    )
}

/// Limits every wait on a connection; a shorter timeout in the URL is kept.
fn with_timeouts(opts: &Opts, limit: Duration, connect: Duration) -> Opts {
    let at_most = |set: Option<Duration>, limit| Some(set.map_or(limit, |set| set.min(limit)));
    let keep_alive = opts.get_tcp_keepalive_time_ms();
    let builder = OptsBuilder::from_opts(opts.clone())
        .tcp_keepalive_time_ms(keep_alive.or(Some(1000 * KEEP_ALIVE)));
    // Data sent into a dead network would otherwise keep a connection for many minutes.
    #[cfg(target_os = "linux")]
    let builder = builder
        .tcp_user_timeout_ms(opts.get_tcp_user_timeout_ms().or(Some(30_000)))
        .tcp_keepalive_probe_interval_secs(
            opts.get_tcp_keepalive_probe_interval_secs()
                .or(Some(KEEP_ALIVE)),
        );
    builder
        // For a loopback address the driver would go on over the socket whose path the server
        // names. Behind a tunnel or a proxy, that socket belongs to another server on this machine.
        .prefer_socket(false)
        .tcp_connect_timeout(at_most(opts.get_tcp_connect_timeout(), connect))
        .read_timeout(at_most(opts.get_read_timeout().copied(), limit))
        .write_timeout(at_most(opts.get_write_timeout().copied(), limit))
        .into()
}
