//! Prints how long the locks over a database take: `mysql_latency mysql://root@host/db`.
//!
//! The program creates the tables if they do not exist, and leaves them there, empty.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use zklock::Result;
use zklock::mysql::{Client, Mutex};

const ROUNDS: usize = 500;

fn main() -> Result<()> {
    let url = env::args()
        .nth(1)
        .unwrap_or_else(|| "mysql://root@127.0.0.1/test".to_owned());
    let client = Client::connect(&url)?;
    client.create_table()?;
    let mutex = client.mutex("latency")?;
    drop(mutex.lock()?);

    let (mut locks, mut checks, mut verifies) = (Vec::new(), Vec::new(), Vec::new());
    let (mut unlocks, mut drops, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
    let other = Client::connect(&url)?.mutex("latency")?;
    for _ in 0..ROUNDS {
        let guard = timed(&mut locks, || mutex.lock())?;
        timed(&mut checks, || guard.check())?;
        timed(&mut verifies, || guard.verify())?;
        timed(&mut refusals, || other.try_lock())?;
        timed(&mut unlocks, || guard.unlock())?;
        let guard = mutex.lock()?;
        timed(&mut drops, || drop(guard));
    }
    print("lock, free", locks);
    print("check", checks);
    print("verify", verifies);
    print("try_lock, taken", refusals);
    print("unlock", unlocks);
    print("drop", drops);
    for most in [500, 50, 5] {
        let builder = Client::builder(&url);
        let first = Duration::from_millis(5);
        let waiting = builder
            .poll_interval(first, Duration::from_millis(most))
            .connect()?;
        let name = format!("hand-over, looking every {most} ms");
        print(&name, hand_overs(&mutex, &waiting.mutex("latency")?)?);
    }
    Ok(())
}

/// Measures from a release until another client, which has waited for long, has the lock.
fn hand_overs(holder: &Mutex, waiter: &Mutex) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..20 {
        let guard = holder.lock()?;
        let waiter = waiter.clone();
        let waiting = thread::spawn(move || waiter.lock().map(|_guard| Instant::now()));
        thread::sleep(Duration::from_millis(1500));
        let begun = Instant::now();
        drop(guard);
        if let Ok(taken) = waiting.join() {
            times.push(taken?.duration_since(begun));
        }
    }
    Ok(times)
}

fn timed<T>(times: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    times.push(begun.elapsed());
    done
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize);
    let (Some(median), Some(slow)) = (at(0.5), at(0.99)) else {
        return;
    };
    println!("{what:32} median {median:>10.1?}  99% {slow:>10.1?}");
}
