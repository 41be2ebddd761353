//! A proxy in front of the server that swallows, refuses and holds back the statements that a test
//! names.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::database::{Server, locked};

/// A proxy in front of a server.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    rules: Arc<Mutex<Rules>>,
}

#[derive(Default)]
struct Rules {
    /// The port of the server.
    to: u16,
    blackhole: bool,
    closed: bool,
    /// After this text the answer is swallowed, and the connection is cut.
    swallow_after: Option<&'static str>,
    /// A statement with this text is answered with this packet, and not passed on.
    answer: Option<(&'static str, Vec<u8>)>,
    /// A statement with this text is held back.
    hold: Option<&'static str>,
    /// Once that statement is held back, the answer to one with this text is, too.
    hold_then_answer: Option<&'static str>,
    /// Everything after a statement with this text on its connection is held back.
    hold_after: Option<&'static str>,
    holding: bool,
    /// The answer to a statement with this text is held back.
    hold_answer: Option<&'static str>,
    holding_answer: bool,
    /// The answer to each statement with this text is passed on up to the first rows or error, and
    /// the connection is cut.
    cut_before_rows: Option<&'static str>,
    /// The answer to a statement with this text is replaced by an empty packet.
    empty: Option<&'static str>,
    /// A new connection is answered with this packet, and ended.
    greeting: Option<Vec<u8>>,
    greeted: u32,
    open: Vec<TcpStream>,
}

/// The proxy's decision about the answer on one connection.
#[derive(Default)]
struct Answer {
    swallow: bool,
    hold: bool,
    cut_before_rows: bool,
    empty: bool,
}

impl Proxy {
    pub(crate) fn new(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let rules = Arc::new(Mutex::new(Rules::default()));
        locked(&rules).to = server.port;
        let shared = rules.clone();
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                if locked(&shared).closed {
                    break;
                }
                if greet(&mut client, &shared) {
                    continue;
                }
                let to = locked(&shared).to;
                // If the server is down, the connection ends at once.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", to)) {
                    connect(&client, &server, &shared);
                }
            }
        });
        Self { port, rules }
    }

    /// Leads new connections to this server from now on.
    pub(crate) fn lead_to(&self, server: &Server) {
        locked(&self.rules).to = server.port;
    }

    /// Lets nothing through from now on; or passes data again, with all that was sent meanwhile.
    pub(crate) fn blackhole(&self, on: bool) {
        locked(&self.rules).blackhole = on;
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for stream in locked(&self.rules).open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Answers new connections from now on with an error of this code, as a proxy does that cannot
    /// reach its server; or passes them on again.
    pub(crate) fn greet_with(&self, code: Option<u16>) {
        let mut rules = locked(&self.rules);
        rules.greeting = code.map(greeting);
        rules.greeted = 0;
    }

    /// Returns how many connections were answered with that error.
    pub(crate) fn greeted(&self) -> u32 {
        locked(&self.rules).greeted
    }

    /// Loses the answer to the next statement with this text, which is carried out.
    pub(crate) fn swallow_answer_to(&self, text: &'static str) {
        locked(&self.rules).swallow_after = Some(text);
    }

    /// Answers the next statement with this text with an error of this code, as proxies do.
    pub(crate) fn refuse(&self, text: &'static str, code: u16) {
        locked(&self.rules).answer = Some((text, error_packet(code)));
    }

    pub(crate) fn has_refused(&self) -> bool {
        locked(&self.rules).answer.is_none()
    }

    /// Answers the next statement with this text as if it had found no row, without passing it on.
    pub(crate) fn ignore(&self, text: &'static str) {
        locked(&self.rules).answer = Some((text, NOTHING_FOUND.to_vec()));
    }

    /// Holds back the next statement with this text until [`release`](Self::release).
    pub(crate) fn hold(&self, text: &'static str) {
        locked(&self.rules).hold = Some(text);
    }

    /// Holds back the next statement with this text, and the answer to the next one after it with the other.
    pub(crate) fn hold_both(&self, text: &'static str, answer_to: &'static str) {
        let mut rules = locked(&self.rules);
        (rules.hold, rules.hold_then_answer) = (Some(text), Some(answer_to));
    }

    /// Holds back everything after the next statement with this text on its connection until
    /// [`release`](Self::release).
    pub(crate) fn hold_after(&self, text: &'static str) {
        locked(&self.rules).hold_after = Some(text);
    }

    pub(crate) fn is_holding(&self) -> bool {
        locked(&self.rules).holding
    }

    pub(crate) fn release(&self) {
        let mut rules = locked(&self.rules);
        (rules.hold, rules.hold_after, rules.holding) = (None, None, false);
    }

    /// Holds back the answer to the next statement with this text until
    /// [`release_answer`](Self::release_answer).
    pub(crate) fn hold_answer_to(&self, text: &'static str) {
        locked(&self.rules).hold_answer = Some(text);
    }

    pub(crate) fn is_holding_answer(&self) -> bool {
        locked(&self.rules).holding_answer
    }

    pub(crate) fn release_answer(&self) {
        let mut rules = locked(&self.rules);
        (rules.hold_answer, rules.holding_answer) = (None, false);
    }

    /// Cuts the answers to all statements with this text from now on, at the first rows or the
    /// error. The statements are carried out.
    pub(crate) fn cut_answers_before_rows(&self, text: &'static str) {
        locked(&self.rules).cut_before_rows = Some(text);
    }

    /// Replaces the answer to the next statement with this text by an empty packet. The statement
    /// is carried out.
    pub(crate) fn empty_answer_to(&self, text: &'static str) {
        locked(&self.rules).empty = Some(text);
    }

    pub(crate) fn has_emptied(&self) -> bool {
        locked(&self.rules).empty.is_none()
    }

    pub(crate) fn has_swallowed(&self) -> bool {
        locked(&self.rules).swallow_after.is_none()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        locked(&self.rules).closed = true;
        self.blackhole(false);
        self.release();
        self.release_answer();
        self.cut();
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Answers a connection in place of the server, if a test said so.
fn greet(client: &mut TcpStream, rules: &Mutex<Rules>) -> bool {
    let mut rules = locked(rules);
    let Some(packet) = rules.greeting.clone() else {
        return false;
    };
    rules.greeted += 1;
    let _ = client.write_all(&packet);
    true
}

fn connect(client: &TcpStream, server: &TcpStream, rules: &Arc<Mutex<Rules>>) {
    let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
    for stream in [client, server] {
        stream.set_nodelay(true).expect("no delay");
        locked(rules).open.push(copy(stream));
    }
    let answer = Arc::new(Mutex::new(Answer::default()));
    for (from, to, is_request) in [(client, server, true), (server, client, false)] {
        let (from, to, rules, answer) = (copy(from), copy(to), rules.clone(), answer.clone());
        thread::spawn(move || pump(from, to, is_request, &rules, &answer));
    }
}

fn pump(
    mut from: TcpStream,
    mut to: TcpStream,
    is_request: bool,
    rules: &Mutex<Rules>,
    answer: &Mutex<Answer>,
) {
    let mut buffer = [0; 65536];
    let mut hold_next = false;
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..length];
        let sent = String::from_utf8_lossy(bytes);
        let is_in = |text: Option<&str>| is_request && text.is_some_and(|text| sent.contains(text));
        {
            let mut rules = locked(rules);
            if is_in(rules.hold) {
                (rules.hold, hold_next) = (None, true);
                rules.hold_answer = rules.hold_then_answer.take().or(rules.hold_answer);
            }
            rules.holding |= hold_next;
        }
        while hold_next && locked(rules).holding {
            thread::sleep(Duration::from_millis(5));
        }
        hold_next = false;
        let answered = locked(rules).answer.take_if(|(text, _)| is_in(Some(text)));
        if let Some((_, packet)) = answered {
            if from.write_all(&packet).is_err() {
                break;
            }
            continue;
        }
        // As with TCP, the bytes that were sent arrive when the network is back.
        while locked(rules).blackhole {
            thread::sleep(Duration::from_millis(5));
        }
        {
            let mut rules = locked(rules);
            if is_in(rules.swallow_after) {
                rules.swallow_after = None;
                locked(answer).swallow = true;
            }
            if is_in(rules.hold_answer) {
                rules.hold_answer = None;
                locked(answer).hold = true;
            }
            if is_in(rules.empty) {
                rules.empty = None;
                locked(answer).empty = true;
            }
            if is_in(rules.cut_before_rows) {
                locked(answer).cut_before_rows = true;
            }
            if is_in(rules.hold_after) {
                (rules.hold_after, hold_next) = (None, true);
            }
        }
        if !is_request && locked(answer).swallow {
            break;
        }
        if !is_request && locked(answer).empty {
            let _ = to.write_all(&[0, 0, 0, 1]);
            break;
        }
        if !is_request && locked(answer).cut_before_rows {
            let passed = before_rows(bytes);
            if to.write_all(&bytes[..passed]).is_err() || passed < length {
                break;
            }
            continue;
        }
        if !is_request && std::mem::take(&mut locked(answer).hold) {
            locked(rules).holding_answer = true;
            while locked(rules).holding_answer {
                thread::sleep(Duration::from_millis(5));
            }
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Returns how many bytes come before the first rows or error, in whole packets.
fn before_rows(bytes: &[u8]) -> usize {
    let mut length = 0;
    while let [low, middle, high, _, 0, ..] = bytes[length..] {
        length += 4 + u32::from_le_bytes([low, middle, high, 0]) as usize;
    }
    length
}

/// The answer to a statement that has changed no row.
const NOTHING_FOUND: &[u8] = &[7, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];

/// Returns an error as the answer to the first packet of a request.
fn error_packet(code: u16) -> Vec<u8> {
    let text = b"#HY000refused by the test";
    let length = u8::try_from(3 + text.len()).expect("a short text");
    let [low, high] = code.to_le_bytes();
    [&[length, 0, 0, 1, 0xff, low, high], &text[..]].concat()
}

/// Returns an error in place of a server's greeting, which has no SQL state.
fn greeting(code: u16) -> Vec<u8> {
    let text = b"refused by the test";
    let length = u8::try_from(3 + text.len()).expect("a short text");
    let [low, high] = code.to_le_bytes();
    [&[length, 0, 0, 0, 0xff, low, high], &text[..]].concat()
}
