//! A distributed lock for blocking Rust programs, on Apache ZooKeeper.
//!
//! One job at a time in a whole cluster: whoever locks a path has it alone, and who comes
//! later waits, in the order of arrival. No runtime, no callbacks: a call blocks until the
//! lock is there, and a guard gives it up when it is dropped.
//!
//! # Quick start
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use zklock::Client;
//!
//! # let server = zklock::embedded::Server::start()?;
//! # let hosts = server.hosts();
//! // "zk1:2181,zk2:2181,zk3:2181/app" in production.
//! let client = Client::connect(hosts)?;
//! let zk_mutex = client.mutex("/locks/nightly-report")?;
//! let guard = zk_mutex.lock()?; // blocks; released when it drops
//!
//! for page in 1..=3 {
//!     guard.check()?; // no I/O: may we still trust the lock?
//!     println!("page {page}, written with token {}", guard.fencing_token());
//! }
//! guard.unlock()?; // waits for the server, and tells whether it was held to the end
//! # Ok(())
//! # }
//! ```
//!
//! # Which lock do I want
//!
//! | I want | Take | At a time |
//! |---|---|---|
//! | one job at a time | [`Mutex`] | one |
//! | one job at a time, and functions under the lock that lock it again | [`ReentrantMutex`] | one thread |
//! | many that read, few that change | [`RwLock`] | readers, or one writer |
//! | at most n imports, connections, licences | [`Semaphore`] | n |
//! | several things at once, such as two accounts | [`MultiLock`] | one, of each |
//!
//! | To get in | Call |
//! |---|---|
//! | wait as long as it takes | [`lock`](Mutex::lock) |
//! | skip the job if another machine has it | [`try_lock`](Mutex::try_lock) |
//! | wait for a while | [`try_lock_for`](Mutex::try_lock_for), [`try_lock_until`](Mutex::try_lock_until) |
//! | wait until told to stop; see who is ahead | [`lock_with`](Mutex::lock_with) and [`LockOptions`] |
//!
//! `RwLock` has the same with `read` and `write`, `Semaphore` with `acquire`. That the lock
//! is taken is not an error: it is `Ok(None)`. Use one kind of lock on a path:
//! `Mutex`, `ReentrantMutex` and `MultiLock` go together, a mutex and a read-write lock
//! don't, which is [`Error::ForeignContender`].
//!
//! | For batch jobs | |
//! |---|---|
//! | see who holds a lock and who waits: host, program, note | [`Client::contenders`] |
//! | ask a holder to let go; remove it | [`Contender::revoke`], [`Contender::evict`] |
//! | remove a holder that hangs, from the queue behind it | [`LockOptions::evict_overdue`] |
//! | learn that the holder before died half way | [`Mutex::track_abandonment`] |
//! | give what it left behind the time to end | [`Mutex::successor_delay`] |
//! | a job so short that clocks which differ would start it twice | [`LockOptions::hold_at_least`] |
//!
//! # What is guaranteed
//!
//! - **Exclusion.** Two guards of one lock never both pass [`check`](MutexGuard::check).
//! - **Early bad news.** A guard knows that its lock is lost *before* the server can give
//!   it to somebody else.
//! - **No ghosts.** Whatever ends an attempt, an error, a timeout, a panic or a lost reply,
//!   its node is deleted, in the background if need be. The locks of a process that dies
//!   are free when its session has timed out.
//! - **Order.** First come, first served, among processes of any language and among the
//!   threads of each. A release wakes the next waiter, or the readers that go in together;
//!   with a mutex also the one after it, which looks at the queue ahead of its turn.
//! - **No hang.** What takes a duration returns within it, plus at most 100 ms, with the
//!   network gone. Dropping a guard or a client never waits for the network.
//!
//! # What is not
//!
//! - **A process that is paused cannot stop itself.** Between `check()` and what you do
//!   next, a machine may sleep or swap until somebody else has the lock. No lock service
//!   can prevent that. The [`FencingToken`] covers it: send it along with each write, and let
//!   the storage refuse a token lower than one it has seen.
//! - **The place in the queue** is lost when the session expires: we queue again, at the
//!   end.
//! - **Whoever may write to the lock's directory** can delete nodes in it. A holder is told,
//!   but a moment after the next one is. Use an [`Acl`].
//! - **A session that is ended by hand**, by an administrator over JMX, by a tool that closes
//!   it under its own id and password, or in a test by `embedded::Server::expire_session`,
//!   takes its locks along at once: its client hears of it only after the next holder may
//!   have begun.
//! - **Servers that forget**, restored from a backup or set up anew, have forgotten who holds
//!   what, see [`Client`]; so have those whose `minSessionTimeout` is below two ticks.
//! - **Forked children** have a copy of a guard, but not the lock; see [`Client`].
//! - **Clients that do not check** are not stopped: a guard is a promise among programs.
//! - Locks are not for high rates: each costs the ensemble two writes to its disks.
//!
//! # When the connection is lost
//!
//! Every guard has a [`state`](MutexGuard::state). T is the session timeout, the shortest that
//! was negotiated in this session ([`Client::session_timeout`]).
//!
//! ```text
//! Held ──(T/6 before the deadline, or disconnected)──► Suspect ──(deadline, expiry, node gone)──► Lost
//!   ▲                                                        │
//!   └───────────(same session, own node verified)────────────┘
//! ```
//!
//! While there is a guard, the client asks the quorum every T/6 whether the lock's node is
//! still there. A ping would not do: a follower that is cut off from its leader answers
//! pings while the leader gives the lock away. The deadline is T/2 after a check that the
//! quorum has committed was sent, or earlier: a commit does not prolong the session, so the
//! guard also goes by the last message that the leader has heard of. A client that comes out
//! of a silence longer than T/3 may wait as long before it is granted a lock.
//!
//! | State | Means | Do |
//! |---|---|---|
//! | Held | a quorum confirmed the lock lately, at most T/3 ago | go on |
//! | Suspect | not confirmed lately; nobody else can have it yet, for [`valid_for`](MutexGuard::valid_for) | begin nothing new |
//! | Lost | somebody else may have it; this is final | stop |
//!
//! [`check`](MutexGuard::check) passes while Held or Suspect, [`verify`](MutexGuard::verify)
//! asks the quorum now, and [`events`](MutexGuard::events) is a channel for `select!`.
//! A thread that waits for a lock goes on waiting, with its place in the queue, when the
//! client has reconnected to any server of the list.
//!
//! # The two transports
//!
//! [`Client::connect`] speaks ZooKeeper's protocol itself. [`Client::from_zookeeper`] is for
//! programs that own a handle of the `zookeeper` crate: as safe, but modest, because the
//! handle tells little. What it does was measured with its version 0.8.0 against ZooKeeper
//! 3.8.0.
//!
//! | | [`Client::connect`] | [`Client::from_zookeeper`] | because the `zookeeper` crate |
//! |---|---|---|---|
//! | connection lost and back in time | Suspect, then Held again | guards are Lost at once, waiters queue again | is at its end after one reset of a busy connection, and goes into a *new* session without a word |
//! | network swallows packets | Suspect after T/3, Lost after T/2, both by the clock | the same, with a T of 4 s at most unless [`Client::from_zookeeper_within`] states what the servers grant; calls are given up after T, and the client with them | blocks for ever in `exists` and `close`, and reports no change |
//! | watches after a reconnect | set again | set by new attempts only | forgets them |
//! | server refuses connections | tries again with growing pauses | the client is at its end | reconnects 1,600 times a second, then gives up for good |
//! | one unknown host among good ones | a warning | no handle to begin with | fails |
//! | proof that the lock is held | one check-only transaction for all locks | a refused delete and a look, for each lock | has no transactions |
//! | uncontended lock | one round trip | three | has no pipeline, and does not tell whose a new node is |
//! | [`MultiLock`] | one transaction | in the order of paths, with roll-back | has no transactions |
//! | lost reply to a create | found again, after a `sync` | counts as a lost connection | has no `sync` |
//! | directories of locks | containers: the server tidies up | stay | sends the wrong request for containers |
//! | [`Client::session_id`] | the server's | a number of our own | does not tell it |
//! | TLS, credentials, dialect, access control lists | [`Client::builder`] | credentials as the handle has them; the rest by default | |
//! | background threads | two a client | five of ours, and the crate's | |
//!
//! # Testing a batch job
//!
//! With the feature `embedded`, a ZooKeeper server runs inside the test: in memory, on a
//! free port of the loopback interface, started in milliseconds. It can be told to misbehave,
//! so a test can show that a job stops when its lock is lost:
//!
//! ```toml
//! [dev-dependencies]
//! zklock = { version = "0.1", features = ["embedded"] }
//! ```
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use zklock::embedded::Server;
//! use zklock::{Client, GuardEvent, LockGuard};
//!
//! /// The job, for the guard of any lock.
//! fn nightly(guard: &impl LockGuard, mut write: impl FnMut(u32)) -> zklock::Result<()> {
//!     for page in 1..=5 {
//!         guard.check()?;
//!         write(page);
//!     }
//!     Ok(())
//! }
//!
//! let server = Server::start()?;
//! let (ours, other) = (Client::connect(server.hosts())?, Client::connect(server.hosts())?);
//! let guard = ours.mutex("/locks/nightly")?.lock()?;
//!
//! // The session expires while the job writes page 2.
//! let mut pages = Vec::new();
//! let ended = nightly(&guard, |page| {
//!     pages.push(page);
//!     if page == 2 {
//!         server.expire_session(ours.session_id());
//!         while guard.events().recv() != Ok(GuardEvent::Lost) {}
//!     }
//! });
//!
//! assert!(ended.unwrap_err().is_lost());
//! assert_eq!(pages, [1, 2]);
//! // Somebody else has the lock now, with a higher token.
//! let next = other.mutex("/locks/nightly")?.try_lock_for(Duration::from_secs(10))?;
//! assert!(guard.fencing_token() < next.expect("it is free").fencing_token());
//! assert!(guard.unlock().is_err());
//! # Ok(())
//! # }
//! ```
//!
//! A connection that breaks and comes back costs no lock; [`events`](MutexGuard::events)
//! tells of it, which a test can wait for instead of sleeping:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use zklock::embedded::Server;
//! # use zklock::{Client, GuardEvent};
//! let server = Server::start()?;
//! let client = Client::connect(server.hosts())?;
//! let guard = client.mutex("/locks/nightly")?.lock()?;
//!
//! server.disconnect_all();
//! assert_eq!(guard.events().recv(), Ok(GuardEvent::Suspect));
//! guard.check()?; // not confirmed, and still ours
//! assert_eq!(guard.events().recv(), Ok(GuardEvent::Held));
//! # Ok(())
//! # }
//! ```
//!
//! And the next machine does not start the job while it runs on the first:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use zklock::embedded::Server;
//! # use zklock::Client;
//! let server = Server::start()?;
//! let (first, second) = (Client::connect(server.hosts())?, Client::connect(server.hosts())?);
//! let running = first.mutex("/locks/nightly")?.lock()?;
//! assert!(second.mutex("/locks/nightly")?.try_lock()?.is_none());
//!
//! drop(running);
//! drop(second.mutex("/locks/nightly")?.lock()?);
//! first.close()?; // waits for the server, unlike a drop
//! second.close()?;
//! assert!(!server.nodes().iter().any(|node| node.contains("-lock-"))); // no ghost
//! # Ok(())
//! # }
//! ```
//!
//! The module `embedded` lists all faults: refuse, blackhole, delay, lose a reply, and more.
//! Short session timeouts make tests fast: `Server::builder().tick(..)` with
//! [`ClientBuilder::session_timeout`].
//!
//! # Clocks and units
//!
//! All times are [`Duration`](std::time::Duration)s and
//! [`Instant`](std::time::Instant)s. Whether a lock is still valid is decided by a clock that
//! goes on while the machine sleeps (`CLOCK_BOOTTIME` on Linux). No two machines need to
//! agree about the time of day: how long a session lives is counted by the ensemble, and how
//! long a guard is valid by its own machine, from the moment at which the last confirmed
//! question was *sent*, and from an earlier one that has reached the leader by then. Their
//! clocks may run at speeds that differ by one percent; `docs/guarantees.md` derives the rule
//! and says what it takes.
//!
//! # Features
//!
//! All of them add, and none changes what another does.
//!
//! | Feature | Gives | Default |
//! |---|---|---|
//! | `zookeeper` | [`Client::from_zookeeper`] | yes |
//! | `tls` | encrypted connections, `ClientBuilder::tls` | no |
//! | `embedded` | `zklock::embedded`, a server for development and tests | no |
//! | `cli` | the program `zklock`, flock(1) for a cluster | no |
//! | `metrics` | the numbers of [`Client::metrics`] through the facade of that name | no |
//! | `mysql` | `zklock::mysql`, the same guards over a table of MySQL or MariaDB | no |

mod acl;
mod builder;
mod client;
mod contender;
mod error;
mod guard;
mod metrics;
mod multi_lock;
mod mutex;
mod options;
mod owner;
mod path;
mod reentrant_mutex;
mod rwlock;
mod semaphore;
#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "embedded")]
pub mod embedded;
// One half of it is the embedded server's.
#[cfg_attr(not(feature = "embedded"), allow(dead_code))]
mod jute;
mod local;
mod lock;
#[cfg(feature = "mysql")]
pub mod mysql;
#[doc(hidden)]
pub mod recipe;
mod session;
/// What tests in here share with those in `tests`.
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
mod time;
mod transport;

pub use crate::acl::{Acl, Permission};
pub use crate::builder::ClientBuilder;
pub use crate::client::Client;
pub use crate::contender::Contender;
pub use crate::error::{Error, Result};
pub use crate::guard::{FencingToken, GuardEvent, GuardState, LockGuard};
pub use crate::metrics::{Histogram, Metrics, Requests};
pub use crate::multi_lock::{MultiGuard, MultiLock};
pub use crate::mutex::{Mutex, MutexGuard, SendGuard};
pub use crate::options::{LockOptions, Waiting};
pub use crate::owner::Owner;
pub use crate::recipe::dialect::{Dialect, Role};
pub use crate::reentrant_mutex::{ReentrantMutex, ReentrantMutexGuard};
pub use crate::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use crate::semaphore::{Permit, Semaphore};
#[cfg(feature = "tls")]
pub use crate::tls::Tls;
pub use crate::transport::session_state::{SessionEvent, SessionState};
