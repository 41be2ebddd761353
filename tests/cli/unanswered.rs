//! What `zklock` says and does while no server answers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Zklock, embedded};
use crate::support::fresh_path;

/// Greets every client, and hangs up at its first request.
fn hangs_up() -> String {
    greets(|mut stream| stream.read_exact(&mut [0; 4]))
}

/// Greets every client, and answers nothing.
fn stays_silent() -> String {
    greets(|mut stream| stream.read_to_end(&mut Vec::new()).map(drop))
}

fn greets(then: fn(TcpStream) -> std::io::Result<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Fails if the client is gone.
            thread::spawn(move || greet(stream).and_then(then));
        }
    });
    hosts
}

fn greet(mut stream: TcpStream) -> std::io::Result<TcpStream> {
    let mut asked = [0; 4 + 45];
    stream.read_exact(&mut asked)?;
    let timeout = &asked[16..20];
    let mut greeting = vec![0, 0, 0, 37, 0, 0, 0, 0];
    greeting.extend(timeout);
    greeting.extend(7_i64.to_be_bytes());
    greeting.extend(16_i32.to_be_bytes());
    greeting.extend([9; 16]);
    greeting.push(0);
    stream.write_all(&greeting)?;
    Ok(stream)
}

#[test]
fn a_refused_connection_is_told_before_the_wait_for_a_server_is_over() {
    for args in [
        "run -n /a -- true",
        "once --slot a /j -- true",
        "list /a",
        "last /j",
        "check /a 7",
        "-v run /a -- true",
    ] {
        let args = format!("--connect-timeout 3 {args}");
        let ended = Zklock::run("127.0.0.1:1", &args, "");
        assert_eq!(ended.code, Some(69), "{args}: {}", ended.err);
        let early =
            "zklock: no server has answered yet, trying on: 127.0.0.1:1: Connection refused";
        let told = ended.err.lines().filter(|line| line.starts_with(early));
        assert_eq!(told.count(), 1, "{args}: {}", ended.err);
        let told = ended.err.lines().last().unwrap_or_default();
        assert!(
            told.starts_with("zklock: no ZooKeeper server answered within 3s"),
            "{told}"
        );
    }
}

/// A look at what lies below the path went on for 15 s, and the attempt after it for T.
#[test]
fn a_deadline_holds_whatever_is_printed() {
    let hosts = hangs_up();
    for args in [
        "run -w 3 /a -- true",
        "-v run -w 3 /a -- true",
        "-v run -n /a -- true",
    ] {
        let begun = Instant::now();
        let ended = Zklock::run(&hosts, args, "");
        let took = begun.elapsed();
        assert_eq!(ended.code, Some(69), "{args}: {}", ended.err);
        assert!(took < Duration::from_secs(10), "{args}: {took:?}");
    }
}

/// The end of the session went on for another second.
#[test]
fn a_server_that_falls_silent_is_not_waited_for_after_the_deadline() {
    let hosts = stays_silent();
    for args in ["run -w 1 /a -- true", "once -w 1 --slot a /j -- true"] {
        let wait = || {
            let begun = Instant::now();
            let ended = Zklock::run(&hosts, args, "");
            assert_eq!(ended.code, Some(69), "{args}: {}", ended.err);
            begun.elapsed()
        };
        // A busy machine may delay one of them.
        let took = (0..3).map(|_| wait()).min();
        assert!(took < Some(Duration::from_millis(1800)), "{args}: {took:?}");
    }
    let standby = || {
        let standby = Zklock::start(&hosts, "standby /s", ":");
        thread::sleep(Duration::from_millis(500));
        let begun = Instant::now();
        standby.signal("TERM");
        assert_eq!(standby.end().signal, Some(15));
        begun.elapsed()
    };
    let took = (0..3).map(|_| standby()).min();
    assert!(took < Some(Duration::from_millis(800)), "{took:?}");
}

#[test]
fn a_command_that_a_short_disconnect_would_stop_is_told_so_when_it_begins() {
    let hosts = embedded();
    let path = fresh_path("margin");
    let begins = "zklock: a connection that is lost for ";
    let ended = Zklock::run(hosts, &format!("run --grace 9 {path}"), "exit 3");
    assert_eq!(ended.code, Some(3));
    assert!(ended.err.starts_with(begins), "{}", ended.err);
    let ended = Zklock::run(hosts, &format!("run {path}"), "exit 3");
    assert_eq!((ended.code, ended.err.as_str()), (Some(3), ""));
    let ended = Zklock::run(hosts, "--session-timeout 2 doctor", "");
    assert!(
        ended.out.contains("a connection that is lost for"),
        "{}",
        ended.out
    );
}
