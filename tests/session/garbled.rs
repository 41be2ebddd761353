//! A network that garbles what a server sends: bytes that are others, frames that are missing, cut off, repeated or out
//! of order, events that nobody has asked for. Whatever the client believes of it, its calls end in time, none of its
//! threads is lost, and it is well again when the network is.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use zklock::embedded::Server;
use zklock::{Client, JobOptions, LockGuard, Result};

use super::{SOON, a_while};
use crate::support::frame::read_frame;
use crate::support::relay::listen;
use crate::support::{eventually, timed, within};

/// How many clients there are, each with two threads: one gets to see only so many mistakes, because most of them break
/// its connection.
const CLIENTS: usize = 8;

/// How long the threads of a client try for a lock.
const WAIT: Duration = Duration::from_millis(300);

/// The numbers of frames that answer no request, and one that is nobody's. That of a login is not among them: a server
/// that refuses one ends the client.
const NUMBERS: [i32; 5] = [-1, -2, -8, -9, 77];

const ERRORS: [i32; 12] = [-4, -5, -6, -7, -8, -101, -102, -103, -110, -112, -118, -127];

/// The way from a server to its clients.
struct Line {
    is_clean: AtomicBool,
    seed: AtomicU64,
}

impl Line {
    /// Passes on what clients send, and garbles what they get; returns where they connect.
    fn from(server: &Server, seed: u64) -> (Arc<Self>, String) {
        let line = Arc::new(Self {
            is_clean: AtomicBool::new(false),
            seed: AtomicU64::new(seed),
        });
        let (hosts, shared) = (server.hosts().to_owned(), Arc::clone(&line));
        let serve = move |client: TcpStream| {
            let Ok(server) = TcpStream::connect(&hosts) else {
                return;
            };
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut from, &mut to));
            // It ends with the connection of either side.
            let _ = shared.garble(&server, &client);
            for socket in [server, client] {
                let _ = socket.shutdown(Shutdown::Both);
            }
        };
        (line, listen(serve))
    }

    fn garble(&self, from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        let mut chance = Rng::with_seed(self.seed.fetch_add(1, Ordering::Relaxed));
        let rate = chance.choice([2, 8, 30]).expect("a rate");
        let mut late = Vec::new();
        let greeted = read_frame(from)?;
        let greeted = match self.is_clean.load(Ordering::Relaxed) {
            true => greeted,
            false => greeting(greeted, &mut chance),
        };
        to.write_all(&framed(&greeted))?;
        loop {
            let frame = read_frame(from)?;
            if self.is_clean.load(Ordering::Relaxed) || chance.u32(0..rate) > 0 {
                to.write_all(&framed(&frame))?;
                to.write_all(&std::mem::take(&mut late))?;
                continue;
            }
            let whole = framed(&frame);
            match chance.u32(0..8) {
                0 => late = whole,
                1 => {}
                2 => to.write_all(&[&whole[..], &whole].concat())?,
                3 => to.write_all(&[&event(&mut chance)[..], &whole].concat())?,
                4 => return to.write_all(&whole[..chance.usize(..whole.len())]),
                5 => to.write_all(&chance.i32(..).to_be_bytes())?,
                _ => to.write_all(&framed(&mistaken(frame, &mut chance)))?,
            }
        }
    }
}

/// Sometimes returns a greeting that a client must not take for a session.
fn greeting(mut frame: Vec<u8>, chance: &mut Rng) -> Vec<u8> {
    let length = frame.len();
    match chance.u32(0..12) {
        0 => frame[4..8].copy_from_slice(&chance.i32(-5..1).to_be_bytes()),
        1 => frame[8..16].fill(0),
        2 => frame[16..20].copy_from_slice(&chance.i32(0..16).to_be_bytes()),
        3 => frame[length - 1] = 1,
        4 => frame.truncate(chance.usize(..length)),
        _ => {}
    }
    frame
}

/// Returns a reply or an event with a mistake in it.
fn mistaken(mut frame: Vec<u8>, chance: &mut Rng) -> Vec<u8> {
    let length = frame.len();
    let number = match chance.u32(0..4) {
        0 => chance.i32(..),
        1 => i32::MAX,
        _ => chance.i32(-2..4),
    };
    match chance.u32(0..6) {
        0 => frame[..4].copy_from_slice(&chance.choice(NUMBERS).expect("one").to_be_bytes()),
        1 => frame[4..12].fill(chance.choice([0, 255]).expect("one")),
        2 => frame[12..16].copy_from_slice(&chance.choice(ERRORS).expect("one").to_be_bytes()),
        3 => frame.truncate(chance.usize(..length)),
        4 => frame.extend(number.to_be_bytes()),
        _ if length < 20 => {}
        _ => {
            let at = chance.usize(16..=length - 4);
            frame[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
    }
    frame
}

fn event(chance: &mut Rng) -> Vec<u8> {
    let paths = ["", "/locks/0", "/zookeeper/config", "/\u{1f512}", "no path"];
    let path = chance.choice(paths).expect("one");
    let mut frame = (-1_i32).to_be_bytes().to_vec();
    frame.extend([255; 8]);
    frame.extend([0; 4]);
    for number in [chance.i32(-2..9), chance.i32(-2..9), path.len() as i32] {
        frame.extend(number.to_be_bytes());
    }
    frame.extend(path.as_bytes());
    framed(&frame)
}

fn framed(content: &[u8]) -> Vec<u8> {
    [&(content.len() as i32).to_be_bytes()[..], content].concat()
}

/// Runs this, which must end soon, whatever comes of it.
#[track_caller]
fn soon<T>(run: impl FnOnce() -> T) -> T {
    let (value, took) = timed(run);
    assert!(took < SOON, "{took:?}");
    value
}

/// Takes one of the locks, and uses its guard; each call ends soon.
fn use_one(client: &Client, chance: &mut Rng) -> Result<()> {
    let path = format!("/locks/{}", chance.u32(0..2));
    let (mutex, rwlock) = (client.mutex(&path)?, client.rwlock("/rw")?);
    let both = client.multi_lock(["/locks/0", "/locks/1"])?;
    match chance.u32(0..7) {
        0 => use_guard(soon(|| mutex.try_lock_for(WAIT))?, chance),
        1 => use_guard(soon(|| rwlock.try_read_for(WAIT))?, chance),
        2 => use_guard(soon(|| rwlock.try_write_for(WAIT))?, chance),
        3 => use_guard(soon(|| both.try_lock_for(WAIT))?, chance),
        4 => {
            let semaphore = client.semaphore("/two", 2)?;
            use_guard(soon(|| semaphore.try_acquire_for(WAIT))?, chance)
        }
        5 => {
            let (job, slot) = (
                client.job("/job")?,
                format!("{:06}", chance.u32(..1_000_000)),
            );
            let options = JobOptions::new().wait(true).deadline(Instant::now() + WAIT);
            soon(|| job.once_with(&slot, options, |run| run.check())).map(drop)
        }
        _ => soon(|| client.locks("/")).map(drop),
    }
}

fn use_guard(guard: Option<impl LockGuard>, chance: &mut Rng) -> Result<()> {
    let Some(guard) = guard else { return Ok(()) };
    if chance.bool() {
        soon(|| guard.verify())?;
        soon(|| guard.transaction().create("/written", b"").commit())?;
    }
    if chance.bool() {
        return soon(|| guard.unlock());
    }
    soon(|| drop(guard));
    Ok(())
}

/// Connects, for which a network that garbles may take several attempts.
fn connect(hosts: &str) -> Client {
    let mut connected = None;
    eventually("a session", || {
        let builder = Client::builder(hosts).session_timeout(Duration::from_secs(1));
        connected = soon(|| builder.connect_timeout(SOON / 2).connect()).ok();
        connected.is_some()
    });
    connected.expect("a session")
}

#[test]
fn a_client_behind_a_network_that_garbles_ends_all_calls_and_is_well_when_the_network_is() {
    let seed = fastrand::u64(..);
    println!("the seed is {seed}");
    let server = Server::builder().tick(Duration::from_millis(50));
    let server = server.start().unwrap();
    let (line, hosts) = Line::from(&server, seed);
    let clients: Vec<_> = (0..CLIENTS).map(|_| connect(&hosts)).collect();
    let end = Instant::now() + a_while(Duration::from_secs(4));
    thread::scope(|scope| {
        for (client, number) in clients.iter().chain(&clients).zip(0..) {
            let mut chance = Rng::with_seed(seed ^ number);
            scope.spawn(move || {
                while Instant::now() < end {
                    // What comes of it is up to the network.
                    let _ = use_one(client, &mut chance);
                }
            });
        }
        // A listing goes on for 15 s while no answer gets through.
        thread::sleep(end.saturating_duration_since(Instant::now()));
        line.is_clean.store(true, Ordering::Relaxed);
    });
    for client in &clients {
        let after = client.mutex("/after").unwrap();
        eventually("it is well", || {
            matches!(soon(|| after.try_lock_for(WAIT)), Ok(Some(_)))
        });
    }
    for client in clients {
        soon(|| client.close()).unwrap();
    }
    let is_over = || server.sessions().is_empty();
    assert!(within(SOON, is_over), "{:?}", server.sessions());
}
