//! Passwords: neither the user's nor the session's is ever shown.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use zklock::{Acl, Client, Error, GuardState};

use super::{SOON, logs};
use crate::support::proxy::Proxy;
use crate::support::relay::{listen, pass_on};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path};

const USER: &str = "the-user";
const PASSWORD: &str = "correct-horse-battery-staple";

#[test]
#[ignore = "needs a ZooKeeper server"]
fn passwords_are_in_no_log_line_and_no_debug_output() {
    logs::keep();
    let listener = Eavesdropper::start(ZooKeeper::shared().port());
    let proxy = Proxy::start(&listener.hosts);
    let path = fresh_path("secrets");
    let builder = Client::builder(&proxy.hosts())
        .session_timeout(SOON)
        .auth("digest", format!("{USER}:{PASSWORD}"))
        .acl(Acl::creator_all());
    let mut shown = vec![show(&builder)];
    let client = builder.connect().unwrap();
    shown.push(show(&client));

    // This does everything that writes a line into a log.
    let mutex = client.mutex(&path).unwrap();
    let events = client.events();
    let guard = mutex.lock().unwrap();
    proxy.cut();
    eventually("the lock is confirmed", || {
        guard.events().try_iter().count() > 0 && guard.state() == GuardState::Held
    });
    shown.push(show(&(&guard, &mutex, client.contenders(&path))));
    drop(guard);
    shown.push(show(&client.rwlock(&path).unwrap().read().unwrap()));
    shown.push(show(&client));
    client.close().unwrap();
    shown.extend(events.try_iter().map(|event| show(&event)));
    let refused = Client::builder(&proxy.hosts())
        .auth("no-such-scheme", format!("{USER}:{PASSWORD}"))
        .connect();
    assert!(matches!(refused, Err(Error::AuthFailed)));
    shown.push(show(&refused));
    #[cfg(feature = "sasl")]
    {
        let sasl = zklock::Sasl::digest(USER, PASSWORD);
        let builder = Client::builder(&proxy.hosts()).sasl(sasl.clone());
        let refused = builder.clone().connect_timeout(SOON / 10).connect();
        assert!(matches!(refused, Err(Error::ConnectTimeout { .. })));
        shown.push(show(&(sasl, builder, refused)));
    }

    let logged = logs::take();
    assert!(logged.iter().any(|line| line.contains("zklock")), "it logs");
    let mut secrets = spellings(PASSWORD.as_bytes());
    secrets.extend(
        listener
            .passwords()
            .iter()
            .flat_map(|password| spellings(password)),
    );
    assert!(secrets.len() > 4, "at least one session has a password");
    for line in logged.iter().chain(&shown) {
        for secret in &secrets {
            assert!(!line.contains(secret), "{secret:?} is shown: {line}");
        }
    }
    println!(
        "{} lines, {} values, {} spellings",
        logged.len(),
        shown.len(),
        secrets.len()
    );
}

fn show(value: &impl Debug) -> String {
    format!("{value:?} {value:#?}")
}

/// Returns the forms that bytes may have in a text.
fn spellings(secret: &[u8]) -> Vec<String> {
    let join = |between: &str, spell: fn(&u8) -> String| {
        let parts: Vec<_> = secret.iter().map(spell).collect();
        parts.join(between)
    };
    let mut all = vec![
        join(", ", u8::to_string),
        join("", |byte| format!("{byte:02x}")),
        join("", |byte| format!("{byte:02X}")),
        // This is a list with one element per line.
        join(",\n", |byte| format!("    {byte}")),
    ];
    // A session's password is not text, and as text it is full of gaps.
    all.extend(std::str::from_utf8(secret).map(str::to_owned));
    all
}

/// A relay in front of the server that records the passwords of sessions.
struct Eavesdropper {
    hosts: String,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Eavesdropper {
    fn start(server: u16) -> Self {
        let heard = Arc::<Mutex<Vec<_>>>::default();
        let ours = Arc::clone(&heard);
        let hosts = listen(move |client| {
            let server = TcpStream::connect(("127.0.0.1", server)).expect("the server");
            pass_on(&client, &server, |_, _| Ok(()));
            let heard = Arc::clone(&ours);
            pass_on(&server, &client, move |from, to| {
                let greeting = first_frame(from)?;
                heard.lock().unwrap().push(password(&greeting));
                to.write_all(&greeting)
            });
        });
        Self { hosts, heard }
    }

    fn passwords(&self) -> Vec<Vec<u8>> {
        let heard = self.heard.lock().unwrap();
        heard
            .iter()
            .filter(|password| password.iter().any(|byte| *byte != 0))
            .cloned()
            .collect()
    }
}

fn first_frame(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut first = vec![0; 4];
    from.read_exact(&mut first)?;
    let length = u32::from_be_bytes([first[0], first[1], first[2], first[3]]);
    first.resize(4 + length as usize, 0);
    from.read_exact(&mut first[4..])?;
    Ok(first)
}

/// Returns the password, which follows the length, the version, the timeout, the session and its
/// own length.
fn password(greeting: &[u8]) -> Vec<u8> {
    greeting.get(24..40).unwrap_or_default().to_vec()
}
