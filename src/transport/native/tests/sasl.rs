//! Servers that get the SASL login wrong.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;

use super::fake::{Act, Fake, Script, greeting, greeting_for};
use super::*;
use crate::transport::native::{Digest, Login};
use zklock_jute::OpCode;

/// The session timeout, which limits the login too.
const TIMEOUT: Duration = Duration::from_millis(900);

/// Returns a reply to the login, in its frame.
fn reply(xid: i32, code: i32, token: &[u8]) -> Vec<u8> {
    let length = (16 + 4 + token.len()) as i32;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(xid.to_be_bytes());
    frame.extend([0; 8]);
    frame.extend(code.to_be_bytes());
    frame.extend((token.len() as i32).to_be_bytes());
    frame.extend(token);
    frame
}

/// What a server does at the first request, the second, and so on.
type Reaction = fn(usize) -> Act;

/// Connects with a login and with other credentials to a server that reacts like this, until the
/// status reports trouble; returns the report, and the requests that the server got.
fn attempt(react: Reaction) -> (String, Vec<OpCode>) {
    let seen: Arc<Mutex<Vec<OpCode>>> = Arc::default();
    let asked = Arc::clone(&seen);
    let mut count = 0;
    let mut script = Script::new(move |_, request| {
        asked.lock().unwrap().push(request.op());
        count += 1;
        react(count)
    });
    // The server greets once and is silent after that: the next attempt changes nothing.
    let mut greetings = vec![greeting(7)];
    script.greet = Box::new(move |_| Some(greetings.pop().unwrap_or_default()));
    let server = Fake::start(script);
    let mut config = Config::plain(&server.hosts(), TIMEOUT);
    config.auth.push(Credentials {
        scheme: "digest".to_owned(),
        secret: Secret(b"ann:other".to_vec()),
    });
    config.sasl = Some(Login::Digest(Digest {
        user: "ann".to_owned(),
        password: "secret".to_owned(),
    }));
    let rig = Rig::open(config);
    let begun = Instant::now();
    let mut trouble = Vec::new();
    let told = crate::support::within(PATIENCE, || {
        trouble = rig.status.trouble();
        trouble.iter().any(|line| !line.contains("it has "))
    });
    assert!(told, "{trouble:?}");
    assert!(begun.elapsed() < 2 * TIMEOUT, "{:?}", begun.elapsed());
    assert_eq!(rig.status.snapshot().connects, 0);
    assert_eq!(rig.ask(exists("/", false)), Err(Failure::NotSent));
    rig.transport.close(PATIENCE);
    let seen = seen.lock().unwrap().clone();
    (trouble.join("; "), seen)
}

const CHALLENGE: &[u8] = b"nonce=\"n\",algorithm=md5-sess";

#[test]
fn nothing_but_the_login_leaves_before_the_server_has_let_the_client_in() {
    let late = "it did not answer the SASL login within";
    let gone = "it closed the connection at the SASL login";
    #[rustfmt::skip]
    let table: [(Reaction, usize, &str); 9] = [
        (|_| Act::Ignore, 1, late),
        (|_| Act::Close, 1, gone),
        (|_| Act::Say(reply(1, 0, CHALLENGE)), 1, "does not answer the login"),
        (|_| Act::Say(vec![0, 0, 0, 3, 1, 2, 3]), 1, "cannot be read"),
        (|_| Act::Say(i32::MIN.to_be_bytes().to_vec()), 1, "cannot be read"),
        (|_| Act::Say(vec![0, 16, 0, 0].into_iter().chain([0; 99]).collect()), 1, "1048576 bytes"),
        // The server sends half a reply, and nothing more.
        (|_| Act::Say(vec![0, 0, 0, 20, 0, 0, 0, 0]), 1, late),
        (|count| match count {
            1 => Act::Say(reply(0, 0, CHALLENGE)),
            _ => Act::Ignore,
        }, 2, late),
        (|count| match count {
            1 => Act::Say(reply(0, 0, CHALLENGE)),
            _ => Act::Raw(reply(0, 0, b"rspauth=guessed")),
        }, 2, "does not prove"),
    ];
    for (react, requests, said) in table {
        let (trouble, seen) = attempt(react);
        assert!(trouble.contains(said), "{trouble}");
        assert!(!trouble.contains("secret"), "{trouble}");
        assert_eq!(seen, vec![OpCode::SASL; requests], "{trouble}");
    }
}

#[test]
fn a_client_that_is_closed_during_the_login_ends_at_once() {
    let server = Fake::start(Script::new(|_, _| Act::Ignore));
    let mut config = Config::plain(&server.hosts(), Duration::from_secs(30));
    config.sasl = Some(Login::Digest(Digest {
        user: "ann".to_owned(),
        password: "secret".to_owned(),
    }));
    let rig = Rig::open(config);
    crate::support::eventually("it waits for the login", || {
        rig.status
            .trouble()
            .join("")
            .contains("the SASL login goes on")
    });
    let begun = Instant::now();
    rig.transport.close(PATIENCE);
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(rig.status.snapshot().state, SessionState::Closed);
}

#[test]
fn a_token_that_the_socket_does_not_take_at_once_arrives() {
    // This is more than the buffers of a socket hold.
    const LONG: usize = 5 * 1024 * 1024;
    const LASTS: Duration = Duration::from_secs(600);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut config = Config::plain(&listener.local_addr().unwrap().to_string(), LASTS);
    config.sasl = Some(Login::Digest(Digest {
        // It is sent as it is, with a backslash before each quotation mark: that takes a debug build little time.
        user: format!("č{}", "\"".repeat(LONG / 2)),
        password: "secret".to_owned(),
    }));
    let rig = Rig::open(config);
    // A busy machine may take longer for that much than the client waits for a login.
    let arrived = (0..20).find_map(|_| long_token(&listener.accept().unwrap().0).ok());
    assert!(arrived.is_some_and(|length| LONG < length), "{arrived:?}");
    rig.transport.close(PATIENCE);
}

/// Greets a client and challenges it; returns the length of its answer, once the socket is full.
fn long_token(mut stream: &TcpStream) -> std::io::Result<usize> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let frame = |mut stream: &TcpStream| {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut content = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut content).map(|()| content.len())
    };
    frame(stream)?;
    stream.write_all(&greeting_for(7, 600_000))?;
    frame(stream)?;
    stream.write_all(&reply(0, 0, &[CHALLENGE, b",charset=utf-8"].concat()))?;
    stream.peek(&mut [0])?;
    thread::sleep(Duration::from_millis(200));
    frame(stream)
}

#[cfg(feature = "sasl-gssapi")]
#[test]
fn a_client_without_a_ticket_does_not_ask_for_its_session() {
    use crate::transport::native::{Kerberos, Waiters};

    let mut script = Script::new(|_, _| Act::Ignore);
    let greeted: Arc<Mutex<usize>> = Arc::default();
    let count = Arc::clone(&greeted);
    script.greet = Box::new(move |_| {
        *count.lock().unwrap() += 1;
        Some(greeting(7))
    });
    let server = Fake::start(script);
    let mut config = Config::plain(&server.hosts(), TIMEOUT);
    config.sasl = Some(Login::Kerberos(Kerberos {
        service: "zookeeper".to_owned(),
        host: None,
        principal: Some("nobody@NOWHERE.TEST".to_owned()),
        waiters: Waiters::default(),
    }));
    let rig = Rig::open(config);
    crate::support::eventually("it says why, and tries again", || {
        let trouble = rig.status.trouble().join("; ");
        trouble.contains("there is no Kerberos ticket") && 2 < server.connections()
    });
    rig.transport.close(PATIENCE);
    assert_eq!(*greeted.lock().unwrap(), 0);
}
