//! One round of a peer in Rust: prints lock grants a second; `wait-N` prints nothing, see
//! `waiting.py`. Usage: HOSTS SCENARIO PATH.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::sleep;

pub const SESSION_TIMEOUT: Duration = Duration::from_secs(20);
const WARM_UP: Duration = Duration::from_millis(700);
const ROUND: Duration = Duration::from_secs(1);

static OVER: AtomicBool = AtomicBool::new(false);
static DONE: AtomicU64 = AtomicU64::new(0);

/// A client of the library, with a session of its own.
pub trait Peer: Send + Sync + Sized + 'static {
    type Held: Send;

    fn connect(hosts: &str) -> impl Future<Output = Self> + Send;
    fn lock(&self, dir: &str) -> impl Future<Output = Self::Held> + Send;
    fn unlock(&self, held: Self::Held) -> impl Future<Output = ()> + Send;
    /// Returns how many contenders hold the lock or wait for it.
    fn contenders(&self, dir: &str) -> impl Future<Output = usize> + Send;

    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        tokio::spawn(task)
    }
}

pub fn run<P: Peer>() {
    let mut args = env::args().skip(1);
    let mut next = || args.next().expect("usage: HOSTS SCENARIO PATH");
    let (hosts, scenario, path) = (next(), next(), next());
    let (kind, count) = scenario.split_once('-').unwrap_or((&scenario, "1"));
    let count = count.parse().expect("a number");
    // A peer that blocks needs a thread for each contender.
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(count)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        match kind {
            "wait" => wait::<P>(&hosts, count, &path).await,
            "queue" => println!("{}", queue::<P>(&hosts, count, &path).await),
            _ => println!(
                "{}",
                rate::<P>(&hosts, count, &path, kind == "handoff").await
            ),
        }
    });
}

/// Lets each task of one client get the lock once.
async fn wait<P: Peer>(hosts: &str, count: usize, path: &str) {
    let shared = Arc::new(P::connect(hosts).await);
    let once = |_| {
        let (client, dir) = (shared.clone(), path.to_owned());
        P::spawn(async move {
            let held = client.lock(&dir).await;
            client.unlock(held).await;
        })
    };
    let waiting: Vec<_> = (0..count).map(once).collect();
    for task in waiting {
        task.await.expect("a contender");
    }
}

/// Returns grants a second while all clients lock and unlock as fast as they can.
async fn rate<P: Peer>(hosts: &str, count: usize, path: &str, hand_off: bool) -> f64 {
    let shared = Arc::new(P::connect(hosts).await);
    let mut seats = Vec::new();
    for at in 0..count {
        seats.push(if hand_off {
            (Arc::new(P::connect(hosts).await), path.to_owned())
        } else {
            (shared.clone(), format!("{path}-{at}"))
        });
    }
    let work = |(client, dir): (Arc<P>, String)| {
        P::spawn(async move {
            while !OVER.load(Ordering::Relaxed) {
                let held = client.lock(&dir).await;
                DONE.fetch_add(1, Ordering::Relaxed);
                client.unlock(held).await;
            }
        })
    };
    let running: Vec<_> = seats.into_iter().map(work).collect();
    sleep(WARM_UP).await;
    let (before, begun) = (DONE.load(Ordering::Relaxed), Instant::now());
    sleep(ROUND).await;
    let done = DONE.load(Ordering::Relaxed) - before;
    let rate = done as f64 / begun.elapsed().as_secs_f64();
    OVER.store(true, Ordering::Relaxed);
    for task in running {
        task.await.expect("a contender");
    }
    rate
}

/// Returns grants a second of a queue that waits behind a holder.
async fn queue<P: Peer>(hosts: &str, count: usize, path: &str) -> f64 {
    let watcher = P::connect(hosts).await;
    let gate = watcher.lock(path).await;
    // The clients stay connected until the end.
    let (mut clients, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (client, dir) = (Arc::new(P::connect(hosts).await), path.to_owned());
        clients.push(client.clone());
        waiting.push(P::spawn(async move {
            let held = client.lock(&dir).await;
            client.unlock(held).await;
        }));
    }
    while watcher.contenders(path).await <= count {
        sleep(Duration::from_millis(20)).await;
    }
    sleep(WARM_UP).await;
    let begun = Instant::now();
    watcher.unlock(gate).await;
    for task in waiting {
        task.await.expect("a contender");
    }
    count as f64 / begun.elapsed().as_secs_f64()
}
