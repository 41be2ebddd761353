//! Why no server could be used, and what to do about it.

use std::fmt;
use std::time::Duration;

/// The end of the reason why a server gave no session, if its port seems not to use TLS.
pub(crate) const NO_TLS: &str =
    "as by a port without TLS, or by a server without a quorum or with too many clients here";

/// The same, if the server agreed on TLS.
pub(crate) const NO_QUORUM: &str =
    "as a server without a quorum does, or one that has too many clients here";

/// The same, if the port may be for TLS.
pub(crate) const TLS_PORT: &str =
    "as a server without a quorum does, one that has too many clients here, or a port for TLS";

/// The reason if the port is for TLS.
pub(crate) const ANSWERS_IN_TLS: &str = "it answers in TLS";

/// The end of the reason if the port seems to be that of something else than ZooKeeper.
pub(crate) const OTHER_SERVICE: &str = "as of another service's port";

/// The beginning of the reason why a login by Kerberos failed.
pub(crate) const NO_TICKET: &str = "there is no Kerberos ticket";

/// The reason while a client waits for a ticket.
pub(crate) const PREPARES_LOGIN: &str =
    "it has accepted a connection, and the client prepares the SASL login";

/// The beginning of the reason why a server that has another mechanism or key is not used.
pub(crate) const NO_SASL_LOGIN: &str = "it does not take a SASL login by";

/// The beginning of the reason why a server that answers a login by Kerberos in another way is not used.
pub(crate) const NOT_GSSAPI: &str = "its answer is not one of GSSAPI";

/// As MIT's centre says it.
const NO_PRINCIPAL: &str = "not found in Kerberos database";

const MECHANISM: &str = "log in by the mechanism for which the servers are configured; if they have a new key for \
    Kerberos, get a new ticket with kinit";

const CERTIFICATE: &str =
    "the servers ask for a certificate that they trust: give the client one, and its key";

const AUTHORITY: &str =
    "name the authority that signed the servers' certificates, with Tls::ca_file or --tls-ca";

const PORT_FOR_TLS: &str = "name the servers' ports for TLS, or connect without it";

const PORT_OR_QUORUM: &str = "name the servers' ports for TLS, or connect without it; if these are for TLS, look whether \
    the servers have a quorum, and whether their maxClientCnxns allows one more connection from this address";

const TICKET: &str = "get a ticket with kinit, or name a keytab in KRB5_CLIENT_KTNAME, and look whether the key \
    distribution centre answers";

const VALIDITY: &str = "renew the servers' certificates, or set the clock of this machine";

/// How many round trips a session timeout needs for guards that stay valid from one check to the next.
const ROUND_TRIPS: u32 = 8;

/// The beginning of the reason why a server's name has no address.
pub(crate) const UNRESOLVED: &str = "the name cannot be resolved";

/// Says why a call ended without an answer to its question; see [`Error::ConnectTimeout`](super::Error).
pub(super) fn no_lock(
    f: &mut fmt::Formatter<'_>,
    (limit, tried): (Duration, &[String]),
    round_trip: Option<Duration>,
    held_back: Option<Duration>,
) -> fmt::Result {
    match (round_trip, held_back) {
        (Some(took), _) => write!(
            f,
            "the servers answer after {took:.1?}, too late for a lock that stays confirmed with this session timeout: set one of {:.0?} or more",
            took * ROUND_TRIPS
        ),
        (None, Some(left)) => write!(
            f,
            "no lock was granted within {limit:.1?}, because after an outage the servers may be about to end the session, which the client knows only {left:.1?} later: allow more time, or try again"
        ),
        (None, None) => unanswered(f, limit, tried),
    }
}

fn unanswered(f: &mut fmt::Formatter<'_>, limit: Duration, tried: &[String]) -> fmt::Result {
    if tried.is_empty() && limit.is_zero() {
        return f.write_str(
            "the limit of zero ended before a server could answer: use the method without a limit, such as try_lock or try_acquire, or allow more time",
        );
    }
    if tried.is_empty() {
        // There is a connection, so some of the requests may have been answered.
        return write!(
            f,
            "no ZooKeeper server answered all that was asked within {limit:?}: allow more time, and look whether the servers run"
        );
    }
    let why = reasons_and_advice(tried);
    write!(f, "no ZooKeeper server answered within {limit:?} {why}")
}

/// Says why each server could not be used, and what to do about it.
pub(crate) fn reasons_and_advice(tried: &[String]) -> String {
    format!("({}): {}", by_reason(tried).join("; "), to_do(tried))
}

/// Groups the lines `host:port: reason` by their reasons, with all servers of each reason.
pub(crate) fn by_reason(tried: &[String]) -> Vec<String> {
    let mut found: Vec<(String, &str)> = Vec::new();
    for one in tried {
        let (server, why) = one.split_once(": ").unwrap_or((one, ""));
        match found.iter_mut().find(|(_, reason)| *reason == why) {
            Some((servers, _)) => *servers = format!("{servers}, {server}"),
            None => found.push((server.to_owned(), why)),
        }
    }
    let line = |(servers, why)| format!("{servers}: {why}");
    found.into_iter().map(line).collect()
}

/// What to do, by a part of the reason why a server could not be used.
const ADVICE: &[(&str, &str)] = &[
    (NO_TLS, PORT_OR_QUORUM),
    (
        NO_QUORUM,
        "look whether the servers have a quorum, and whether their maxClientCnxns allows one more connection from \
         this address",
    ),
    // What came is no TLS.
    ("InvalidContentType", PORT_FOR_TLS),
    (
        TLS_PORT,
        "look whether the servers have a quorum, whether their maxClientCnxns allows one more \
         connection from this address, and whether these ports are for TLS: then connect with it",
    ),
    (
        ANSWERS_IN_TLS,
        "connect with TLS, or name the servers' ports without it",
    ),
    (
        OTHER_SERVICE,
        "name the ports at which the servers listen for clients, such as 2181",
    ),
    (
        NO_PRINCIPAL,
        "name the servers as their principals do, zookeeper/HOST by default; Sasl::service and Sasl::host override \
         the parts",
    ),
    (NO_TICKET, TICKET),
    (PREPARES_LOGIN, TICKET),
    (NO_SASL_LOGIN, MECHANISM),
    (NOT_GSSAPI, MECHANISM),
    (
        "it has no SASL login",
        "configure the servers for a login by SASL, or connect without one",
    ),
    ("UnknownIssuer", AUTHORITY),
    // Its name is that of an authority which was named, and its key is another.
    ("BadSignature", AUTHORITY),
    ("certificate expired", VALIDITY),
    ("certificate not valid yet", VALIDITY),
    (
        "certificate not valid for name",
        "name the servers as their certificates do, or get certificates for these names",
    ),
    (
        "CaUsedAsEndEntity",
        "give the servers certificates of their own: the one that they show is that of an authority",
    ),
    (
        "received fatal alert: CertificateExpired",
        "renew the client's certificate",
    ),
    ("CertificateRequired", CERTIFICATE),
    // Older servers give no other reason.
    ("HandshakeFailure", CERTIFICATE),
    ("BadCertificate", CERTIFICATE),
    ("received fatal alert: CertificateUnknown", CERTIFICATE),
    ("received fatal alert: UnknownCA", CERTIFICATE),
    ("received fatal alert: DecryptError", CERTIFICATE),
];

/// Returns the advice about servers that could not be used, given their reasons.
pub(super) fn to_do(tried: &[String]) -> &'static str {
    let said = |text: &str| tried.iter().any(|reason| reason.contains(text));
    let found = ADVICE.iter().find(|(text, _)| said(text));
    found.map_or(
        "check the host names and ports, and that the servers run",
        |(_, advice)| advice,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        NO_QUORUM, NO_SASL_LOGIN, NO_TICKET, NO_TLS, NOT_GSSAPI, PREPARES_LOGIN, TLS_PORT,
        by_reason, to_do,
    };
    use crate::Error;

    #[test]
    fn a_limit_of_zero_is_told_from_a_server_that_does_not_answer() {
        let told = |limit| {
            let error = Error::ConnectTimeout {
                limit,
                tried: Vec::new(),
                round_trip: None,
                held_back: None,
            };
            error.to_string()
        };
        let of_a_mutex_or_a_semaphore = "such as try_lock or try_acquire";
        assert!(told(Duration::ZERO).contains(of_a_mutex_or_a_semaphore));
        assert!(told(Duration::from_secs(1)).contains("look whether the servers run"));
    }

    #[test]
    fn the_advice_about_a_servers_certificate_is_about_the_certificate() {
        // As rustls says it.
        for (reason, advice) in [
            ("UnknownIssuer", "name the authority"),
            ("BadSignature", "name the authority"),
            ("certificate expired: verification time 2 (UNIX)", "renew"),
            (
                "certificate not valid yet: verification time 2 (UNIX)",
                "clock",
            ),
            (
                "certificate not valid for name \"zk\"",
                "name the servers as",
            ),
            (
                "Other(OtherError(CaUsedAsEndEntity))",
                "that of an authority",
            ),
        ] {
            let tried = format!("zk:1: invalid peer certificate: {reason}");
            assert!(to_do(&[tried]).contains(advice), "{reason}");
        }
    }

    #[test]
    fn the_advice_about_what_a_server_answers_to_tls_is_about_the_clients_certificate_or_the_port()
    {
        for (reason, advice) in [
            (
                "received fatal alert: CertificateExpired",
                "renew the client's",
            ),
            ("received fatal alert: UnknownCA", "give the client one"),
            ("received fatal alert: DecryptError", "give the client one"),
            (
                "received corrupt message of type InvalidContentType",
                "ports for TLS",
            ),
        ] {
            let tried = format!("zk:1: TLS could not be agreed on: {reason}");
            assert!(to_do(&[tried]).contains(advice), "{reason}");
        }
    }

    #[test]
    fn the_advice_about_a_server_that_hangs_up_is_about_its_quorum_and_its_port() {
        for (cause, ports) in [(NO_TLS, true), (NO_QUORUM, false), (TLS_PORT, true)] {
            let told = to_do(&[format!("zk:1: it closed the connection, {cause}")]);
            assert!(told.contains("have a quorum"), "{told}");
            assert_eq!(told.contains("for TLS"), ports, "{told}");
        }
    }

    #[test]
    fn the_advice_about_a_login_is_about_the_ticket_or_the_mechanism() {
        for (reason, advice) in [
            (NO_TICKET, "the key distribution centre"),
            (PREPARES_LOGIN, "the key distribution centre"),
            (NO_SASL_LOGIN, "the mechanism"),
            (NOT_GSSAPI, "the mechanism"),
            (
                "there is no Kerberos ticket for a@b: Server a/b@C not found in Kerberos database",
                "zookeeper/HOST",
            ),
        ] {
            assert!(
                to_do(&[format!("zk:1: {reason}")]).contains(advice),
                "{reason}"
            );
        }
    }

    #[test]
    fn servers_with_the_same_reason_are_told_together() {
        let tried = ["a:1: refused: why", "b:2: slow", "[::1]:3: refused: why"];
        let told = by_reason(&tried.map(str::to_owned));
        assert_eq!(told, ["a:1, [::1]:3: refused: why", "b:2: slow"]);
    }
}
