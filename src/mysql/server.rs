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

/// More bytes than the statements and answers of the locks have. Without a number, the driver asks
/// the server for one, and cannot read an answer in UTF-16.
const LONGEST_PACKET: usize = 16 * 1024 * 1024;

/// Connects to an address that accepts the connection; limits every wait on it.
pub(super) fn connect(opts: &Opts, limit: Duration) -> Result<Conn> {
    let addresses = addresses(opts)?;
    // The first address may be tried twice.
    let share = match addresses.len() {
        0 | 1 => limit,
        several => limit / (1 + u32::try_from(several).unwrap_or(u32::MAX - 1)),
    };
    let tries = tries(&with_timeouts(opts, limit, share), &addresses);
    let mut conns = tries.into_iter().map(Conn::new);
    let first = conns.next().unwrap_or_else(|| Conn::new(opts.clone()));
    match is_not_there(&first) {
        true => conns.find(|conn| !is_not_there(conn)).unwrap_or(first),
        false => first,
    }
}

/// Returns the options for each connection to try.
fn tries(opts: &Opts, addresses: &[SocketAddr]) -> Vec<Opts> {
    let builder = || OptsBuilder::from_opts(opts.clone());
    let to = |address: &SocketAddr| builder().ip_or_hostname(Some(address.ip().to_string()));
    let has_scope = |address: &SocketAddr| match address {
        SocketAddr::V4(_) => false,
        SocketAddr::V6(address) => address.scope_id() > 0,
    };
    if opts.get_ssl_opts().is_none() && !addresses.is_empty() && !addresses.iter().any(has_scope) {
        return addresses.iter().map(to).map(Opts::from).collect();
    }
    // A certificate is for the name, which the driver then looks up once more. It tries only the
    // first address of a name, unless it binds the connection to an address of this machine: then
    // it tries all of that kind.
    let is_of = |own: &IpAddr| addresses.iter().any(|to| to.is_ipv4() == own.is_ipv4());
    let kinds = OWN
        .into_iter()
        .filter(|own| 1 < addresses.len() && is_of(own));
    let bound = kinds.map(|own| builder().bind_address(Some(SocketAddr::new(own, 0))));
    [opts.clone()]
        .into_iter()
        .chain(bound.map(Opts::from))
        .collect()
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
        .max_allowed_packet(opts.get_max_allowed_packet().or(Some(LONGEST_PACKET)))
        // For a loopback address the driver would go on over the socket whose path the server
        // names. Behind a tunnel or a proxy, that socket belongs to another server on this machine.
        .prefer_socket(false)
        .tcp_connect_timeout(at_most(opts.get_tcp_connect_timeout(), connect))
        .read_timeout(at_most(opts.get_read_timeout().copied(), limit))
        .write_timeout(at_most(opts.get_write_timeout().copied(), limit))
        .into()
}

#[cfg(test)]
mod tests {
    use ::mysql::SslOpts;

    use super::*;

    #[test]
    fn a_name_is_looked_up_a_second_time_only_for_its_certificate() {
        let opts = Opts::from_url("mysql://app@db.example/app").expect("a good URL");
        let addresses = ["192.0.2.1:3306", "[2001:db8::1]:3306"];
        let addresses = addresses.map(|address| address.parse().expect("an address"));
        let hosts = |opts: &Opts| -> Vec<_> {
            let tries = tries(opts, &addresses);
            tries
                .iter()
                .map(|opts| opts.get_ip_or_hostname().into_owned())
                .collect()
        };
        assert_eq!(hosts(&opts), ["192.0.2.1", "2001:db8::1"]);
        let tls = OptsBuilder::from_opts(opts).ssl_opts(Some(SslOpts::default()));
        assert_eq!(hosts(&tls.into()), ["db.example"; 3]);
    }
}
