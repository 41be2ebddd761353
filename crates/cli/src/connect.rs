//! Creates the client that the arguments describe. Credentials come from the environment or a file,
//! because every user of the machine can read the arguments.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use zklock::{Acl, Client, ClientBuilder, Dialect, Error};

use crate::args::{Args, HOSTS_FILE, LockDialect, Protection};
use crate::failure::{CONFIG, Failure, NO_PERMISSION};
use crate::status_line::ConnectingLine;
use crate::stderr::say;

const AUTH: &str = "ZKLOCK_AUTH";
/// Replaces the scheme of other credentials.
const SASL: &str = "sasl";

/// Connects, performs a task that returns the program's status, and ends the session.
pub(crate) fn with_client(
    args: &Args,
    task: impl FnOnce(&Client) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let client = connect(args, None, Duration::MAX)?;
    let code = task(&client)?;
    drop(client.close());
    Ok(code)
}

/// Connects; gives up after `limit`, or earlier if the user set a shorter limit.
pub(crate) fn connect(args: &Args, note: Option<&str>, limit: Duration) -> Result<Client, Failure> {
    let hosts = hosts(args)?;
    let mut builder = builder_for(args, &hosts)?;
    if let Some(note) = note {
        builder = builder.note(note);
    }
    let (line, mut told) = (ConnectingLine::new(&hosts), None);
    let connected = builder
        .connect_timeout(args.connect_timeout.min(limit))
        .connect_and_look(|trouble| told = line.tell(trouble));
    drop(line);
    let (client, lacks_chroot) = connected.map_err(|error| match error {
        Error::AuthFailed => Failure::new(
            NO_PERMISSION,
            format!(
                "the servers {hosts} refused the credentials in {}: check the scheme, the user and the password",
                source(args)
            ),
        ),
        Error::NoAuth { path } if args.create_chroot => Failure::new(
            NO_PERMISSION,
            format!("this client may not create the chroot {path}: create it as somebody who may, or ask for the right to"),
        ),
        error @ Error::ConnectTimeout { .. } => Failure::from(error).without(told.as_deref()),
        error => error.into(),
    })?;
    match hosts.split_once('/') {
        Some((_, chroot)) if lacks_chroot => Err(Failure::new(
            CONFIG,
            format!(
                "the chroot /{chroot} of {hosts} does not exist: create it, with --create-chroot or with create /{chroot} in zkCli.sh"
            ),
        )),
        _ => Ok(client),
    }
}

/// Returns the servers that the user named, or those in the file that the user named.
pub(crate) fn hosts(args: &Args) -> Result<String, Failure> {
    let Some(hosts) = args.hosts.as_deref().filter(|hosts| !hosts.is_empty()) else {
        return Err(Failure::usage(
            "which servers? say --hosts zk1:2181,zk2:2181 or set ZKLOCK_HOSTS",
        ));
    };
    let Some(file) = hosts.strip_prefix(HOSTS_FILE) else {
        return Ok(hosts.to_owned());
    };
    let text = fs::read_to_string(file);
    let text = text
        .map_err(|error| Failure::usage(format!("cannot read the servers in {file}: {error}")))?;
    match in_file(&text) {
        hosts if hosts.is_empty() => Err(Failure::usage(format!(
            "there are no servers in {file}: write one a line, such as zk1:2181"
        ))),
        hosts => Ok(hosts),
    }
}

/// Extracts the servers from a text of one or more lines, with comments.
fn in_file(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.split('#').next());
    let servers = lines.flat_map(|line| line.split(',')).map(str::trim);
    let servers: Vec<_> = servers.filter(|server| !server.is_empty()).collect();
    servers.join(",")
}

/// Returns a builder for the client that the arguments describe.
pub(crate) fn builder(args: &Args) -> Result<ClientBuilder, Failure> {
    builder_for(args, &hosts(args)?)
}

pub(crate) fn dialect(dialect: LockDialect) -> Dialect {
    match dialect {
        LockDialect::Curator => Dialect::Curator,
        LockDialect::Kazoo => Dialect::Kazoo,
        LockDialect::Recipe => Dialect::Recipe,
        LockDialect::LeaderLatch => Dialect::LeaderLatch,
    }
}

/// Sets the timeouts. With -n, a command waits longer than half a session timeout for a server: the
/// time of an election.
fn with_timeouts(args: &Args, builder: ClientBuilder) -> ClientBuilder {
    let builder = builder
        .session_timeout(args.session_timeout())
        .tries_offline_for(args.session_timeout() / 2)
        .wall_clock_expiry(args.wall_clock_expiry)
        .create_chroot(args.create_chroot)
        .follow_reconfiguration(args.follow_reconfiguration);
    match args.granted_at_least {
        Some(least) => builder.granted_at_least(least),
        None => builder,
    }
}

/// Like [`builder`], for these servers.
pub(crate) fn builder_for(args: &Args, hosts: &str) -> Result<ClientBuilder, Failure> {
    let credentials = credentials(args)?;
    let is_known = !credentials.is_empty() || has_certificate(args) || has_ticket(args);
    if let (Protection::Creator, false) = (args.acl, is_known) {
        return Err(Failure::usage(format!(
            "--acl creator is for your credentials, and there are none: set {AUTH} or say --auth-file"
        )));
    }
    let mut builder = with_timeouts(args, Client::builder(hosts))
        .acl(match args.acl {
            Protection::Open => Acl::open(),
            Protection::Creator => Acl::creator_all(),
        })
        .dialect(dialect(args.dialect));
    #[cfg(feature = "tls")]
    if let Some(tls) = tls(&args.tls) {
        builder = builder.tls(tls);
    }
    let is_login = |(scheme, _): &&(String, String)| scheme == SASL;
    if 1 < credentials.iter().filter(is_login).count() + usize::from(has_ticket(args)) {
        return Err(Failure::usage(format!(
            "a client logs in as one user: leave one line for SASL in {}, or --kerberos",
            source(args)
        )));
    }
    #[cfg(feature = "sasl-gssapi")]
    if args.kerberos {
        builder = builder.sasl(zklock::Sasl::kerberos());
    }
    for (scheme, credentials) in credentials {
        builder = match scheme.as_str() {
            SASL => log_in(builder, &credentials)?,
            scheme => builder.auth(scheme, credentials),
        };
    }
    Ok(builder)
}

#[cfg(feature = "sasl-gssapi")]
fn has_ticket(args: &Args) -> bool {
    args.kerberos
}

#[cfg(not(feature = "sasl-gssapi"))]
fn has_ticket(_: &Args) -> bool {
    false
}

#[cfg(feature = "sasl")]
fn log_in(builder: ClientBuilder, credentials: &str) -> Result<ClientBuilder, Failure> {
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    Ok(builder.sasl(zklock::Sasl::digest(user, password)))
}

#[cfg(not(feature = "sasl"))]
fn log_in(_: ClientBuilder, _: &str) -> Result<ClientBuilder, Failure> {
    Err(Failure::usage(
        "this zklock is built without SASL: build it with the feature of that name",
    ))
}

#[cfg(feature = "tls")]
fn has_certificate(args: &Args) -> bool {
    args.tls.tls_cert.is_some()
}

#[cfg(not(feature = "tls"))]
fn has_certificate(_: &Args) -> bool {
    false
}

#[cfg(feature = "tls")]
pub(crate) fn is_encrypted(args: &Args) -> bool {
    tls(&args.tls).is_some()
}

#[cfg(not(feature = "tls"))]
pub(crate) fn is_encrypted(_: &Args) -> bool {
    false
}

#[cfg(feature = "tls")]
fn tls(said: &crate::args::TlsArgs) -> Option<zklock::Tls> {
    let wanted = said.tls || said.tls_ca.is_some() || said.tls_cert.is_some();
    let mut tls = zklock::Tls::new();
    if let Some(ca) = &said.tls_ca {
        tls = tls.ca_file(ca);
    }
    if let (Some(cert), Some(key)) = (&said.tls_cert, &said.tls_key) {
        tls = tls.client_cert(cert, key);
    }
    wanted.then_some(tls)
}

/// Returns where the credentials come from.
fn source(args: &Args) -> String {
    match &args.auth_file {
        Some(file) => file.display().to_string(),
        None => AUTH.to_owned(),
    }
}

fn credentials(args: &Args) -> Result<Vec<(String, String)>, Failure> {
    let place = source(args);
    let text = match &args.auth_file {
        Some(file) => {
            check_privacy(file, args.strict)?;
            let text = fs::read_to_string(file);
            text.map_err(|error| Failure::usage(format!("cannot read the file {place}: {error}")))?
        }
        None => match env::var(AUTH) {
            Ok(text) => text,
            Err(env::VarError::NotPresent) => return Ok(Vec::new()),
            Err(_) => return Err(Failure::usage(format!("{AUTH} is not a text"))),
        },
    };
    parse(&text).ok_or_else(|| {
        Failure::usage(format!(
            "write scheme:credentials into {place}, one a line, such as digest:user:password"
        ))
    })
}

/// Warns if others can read the credentials, or fails if the user asked for that.
fn check_privacy(file: &Path, strict: bool) -> Result<(), Failure> {
    let mode = fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let file = file.display();
    let warning = format!("other users may read the credentials in {file}: chmod 600 {file}");
    if strict {
        return Err(Failure::usage(warning));
    }
    say(&warning);
    Ok(())
}

/// Parses lines such as `digest:user:password`; the text after the first colon is kept
/// unchanged.
fn parse(text: &str) -> Option<Vec<(String, String)>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let (scheme, credentials) = line.split_once(':')?;
            let scheme = scheme.trim();
            // Servers accept a user without a password, but give it no rights.
            let is_whole = !["digest", SASL].contains(&scheme) || credentials.contains(':');
            (!scheme.is_empty() && is_whole).then(|| (scheme.to_owned(), credentials.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zklock_testkit::fuzz;

    use super::*;

    const VALID: &[&str] = &[
        "digest:ann:secret",
        "digest:ann:p:w\n\nworld:x \nsasl:ann:secret",
        " digest :böb:pässword\r\nip:\r\n",
    ];

    const WORDS: &[&str] = &[
        ":", "::", "\n", "\r", "\r\n", "\n\n", " ", "\t", "\0", "digest", "\u{feff}", "\u{2028}",
        "\u{85}", "😀",
    ];

    /// Asserts that every line has a scheme and credentials, taken as they are, or that the text is refused.
    fn are_taken_as_they_are_or_refused(text: &str) {
        let lines: Vec<_> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let is_good = |line: &&str| match line.split_once(':') {
            Some((scheme, rest)) if ["digest", SASL].contains(&scheme.trim()) => rest.contains(':'),
            Some((scheme, _)) => !scheme.trim().is_empty(),
            None => false,
        };
        let Some(read) = parse(text) else {
            return assert!(!lines.iter().all(is_good));
        };
        assert_eq!(read.len(), lines.len());
        for ((scheme, credentials), line) in read.iter().zip(lines) {
            assert!(!scheme.is_empty() && scheme.trim() == scheme);
            let rest = line.trim_start().strip_prefix(scheme.as_str());
            let rest = rest.and_then(|rest| rest.trim_start().strip_prefix(':'));
            assert_eq!(rest, Some(credentials.as_str()));
        }
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn credentials_with_mistakes_are_taken_as_they_are_or_refused(
            text in fuzz::texts(VALID, WORDS),
        ) {
            are_taken_as_they_are_or_refused(&text);
        }

        #[test]
        fn any_text_is_taken_as_it_is_or_refused(text: String) {
            are_taken_as_they_are_or_refused(&text);
        }
    }

    #[test]
    fn huge_credentials_are_taken_as_they_are_or_refused_in_time() {
        for piece in ["digest:a:b\n", ":", "\n", "é", "digest:", "a: \n \n"] {
            are_taken_as_they_are_or_refused(&piece.repeat(300_000));
        }
    }

    #[test]
    fn servers_are_lines_or_between_commas() {
        for text in [
            "zk1:2181,zk2:2181/app",
            "zk1:2181\nzk2:2181/app\n",
            "# production\n zk1:2181, # the first\n\r\n, zk2:2181/app\r\n",
        ] {
            assert_eq!(in_file(text), "zk1:2181,zk2:2181/app");
        }
        assert_eq!(in_file("# none\n"), "");
    }

    #[test]
    fn credentials_are_lines_of_a_scheme_and_the_rest() {
        let pair = |scheme: &str, rest: &str| (scheme.to_owned(), rest.to_owned());
        assert_eq!(
            parse("digest:ann:p:w\n\n world:x \nsasl:ann:p:w"),
            Some(vec![
                pair("digest", "ann:p:w"),
                pair("world", "x "),
                pair("sasl", "ann:p:w"),
            ])
        );
        assert_eq!(parse(""), Some(vec![]));
        assert_eq!(parse("secret"), None);
        assert_eq!(parse(":secret"), None);
        assert_eq!(parse("digest:ann"), None);
        assert_eq!(parse("sasl:ann"), None);
    }
}
