//! A server that refuses everyone must not be pestered, nor cost us anything.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zklock::{Client, Error};

const MINUTE: Duration = Duration::from_secs(60);

/// The hundredths of a second that this process has computed for, where Linux tells.
fn cpu_ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name before the bracket may hold anything, blanks too.
    let (_, fields) = stat.rsplit_once(')')?;
    let numbers = fields.split_whitespace().skip(11).take(2);
    numbers.map(|number| number.parse::<u64>().ok()).sum()
}

#[test]
#[ignore = "takes a minute"]
fn a_server_that_refuses_sees_fewer_than_sixty_connections_a_minute() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = listener.local_addr().unwrap().to_string();
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    // It ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::Relaxed);
            drop(stream);
        }
    });
    let (before, start) = (cpu_ticks(), Instant::now());
    let connecting = Client::builder(&hosts)
        .session_timeout(Duration::from_secs(4))
        .connect_timeout(MINUTE)
        .connect();
    let Err(Error::ConnectTimeout { tried, .. }) = connecting else {
        panic!("{connecting:?}");
    };
    let took = start.elapsed();
    assert!(
        (MINUTE..MINUTE + Duration::from_millis(500)).contains(&took),
        "{took:?}"
    );
    assert!(
        tried.iter().any(|line| line.starts_with(&hosts)),
        "{tried:?}"
    );
    let seen = seen.load(Ordering::Relaxed);
    assert!((10..60).contains(&seen), "{seen} connections in a minute");
    if let (Some(before), Some(after)) = (before, cpu_ticks()) {
        let ticks = after - before;
        assert!(ticks < 120, "{ticks} hundredths of a second in a minute");
    }
}
