//! A distributed lock for blocking Rust programs, on Apache ZooKeeper.
//!
//! A client that locks a path excludes every other one in the cluster, and those that come
//! later wait in the order of arrival. There is no runtime and there are no callbacks: a call
//! blocks until the lock is held, and the guard releases it when it is dropped.
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
//!     guard.check()?; // no I/O: is the lock still held?
//!     println!("page {page}, written with token {}", guard.fencing_token());
//! }
//! guard.unlock()?; // waits for the server; fails if the lock was lost
//! # Ok(())
//! # }
//! ```
//!
//! # Which lock to use
//!
//! | For | Use | Held by |
//! |---|---|---|
//! | one job at a time | [`Mutex`] | one guard |
//! | one job at a time, whose functions lock it again | [`ReentrantMutex`] | one thread |
//! | many readers and few writers | [`RwLock`] | readers, or one writer |
//! | at most n imports, connections, licences | [`Semaphore`] | n permits |
//! | several things at once, such as two accounts | [`MultiLock`] | one guard, of all |
//!
//! | To | Call |
//! |---|---|
//! | wait as long as it takes | [`lock`](Mutex::lock) |
//! | skip the job if another machine has the lock | [`try_lock`](Mutex::try_lock) |
//! | wait for a limited time | [`try_lock_for`](Mutex::try_lock_for), [`try_lock_until`](Mutex::try_lock_until) |
//! | wait until cancelled; see who is ahead | [`lock_with`](Mutex::lock_with) and [`LockOptions`] |
//!
//! `RwLock` has the same methods for `read` and `write`, `Semaphore` for `acquire`. A lock that is
//! taken is not an error: the result is `Ok(None)`. Use one kind of lock on a path: `Mutex`,
//! `ReentrantMutex` and `MultiLock` exclude each other there; a mutex and a read-write lock do
//! not, which is [`Error::ForeignContender`].
//!
//! | For batch jobs | Use |
//! |---|---|
//! | list holders and waiters, with host, program and note | [`Client::contenders`] |
//! | ask a holder to release the lock; delete its node | [`Contender::revoke`], [`Contender::evict`] |
//! | evict a holder that hangs, while waiting behind it | [`LockOptions::evict_overdue`] |
//! | learn that the last holder died half way | [`Mutex::track_abandonment`] |
//! | give what it left behind time to end | [`Mutex::successor_delay`] |
//! | run a job once, although clocks that differ start it twice | [`LockOptions::hold_at_least`] |
//!
//! # What is guaranteed
//!
//! - **Exclusion.** Two guards of one lock never both pass [`check`](MutexGuard::check).
//! - **Early bad news.** A guard knows that its lock is lost *before* the server can grant it to
//!   another client.
//! - **No ghosts.** However an attempt ends, by an error, a timeout, a panic or a lost reply, its
//!   node is deleted, in the background if need be. The locks of a process that dies are free
//!   when its session has timed out.
//! - **Order.** First come, first served, among processes of any language and among the
//!   threads of each. A release wakes the next waiter, or the readers that are next; of a mutex
//!   also the waiter after it, which looks at the queue ahead of its turn.
//! - **No hang.** A call with a time limit returns within it, plus at most 100 ms, even without a
//!   network. Dropping a guard or a client never waits for the network.
//!
//! # What is not
//!
//! - **A paused process cannot stop itself.** Between `check()` and the next step a machine may
//!   sleep or swap until another client has the lock. No lock service can prevent that. The
//!   [`FencingToken`] covers it: send it along with each write, and let the storage refuse a
//!   token lower than one it has seen.
//! - **The place in the queue** is lost when the session expires: the waiter queues again, at the
//!   end.
//! - **Clients that may write to the lock's directory** can delete nodes in it. The holder learns
//!   of that, but a moment after the next one. Use an [`Acl`].
//! - **A session that is ended by hand**, by an administrator over JMX, by a tool that closes
//!   it under its own id and password, or in a test by `embedded::Server::expire_session`,
//!   loses its locks at once: the next holder may begin before the client learns of it.
//! - **Servers that forget**, because they were restored from a backup or set up anew, do not know
//!   who holds what, see [`Client`]; nor do those whose `minSessionTimeout` is below two ticks.
//! - **Forked children** have a copy of a guard, but not the lock; see [`Client`].
//! - **Clients that do not check** are not stopped: a lock binds only programs that honour it.
//! - **High rates**: each lock costs the ensemble two writes to its disks.
//!
//! # When the connection is lost
//!
//! Every guard has a [`state`](MutexGuard::state). T is the session timeout: the shortest that
//! was negotiated in this session ([`Client::session_timeout`]).
//!
//! ```text
//! Held ──(T/6 before the deadline, or disconnected)──► Suspect ──(deadline, expiry, node gone)──► Lost
//!   ▲                                                        │
//!   └───────────(same session, own node verified)────────────┘
//! ```
//!
//! While there is a guard, the client asks the quorum every T/6 whether the lock's node still
//! exists. A ping is no proof: a follower that is cut off from its leader answers pings while the
//! leader grants the lock to another client. The deadline is T/2 after the client sent the last
//! check that the quorum committed, or earlier: a commit does not prolong the session, so the
//! guard also relies on the last message that the leader has heard of. After a silence of more
//! than T/3, a client may wait up to T/3 before it is granted a lock.
//!
//! | State | Meaning | What to do |
//! |---|---|---|
//! | Held | a quorum confirmed the lock lately, at most T/3 ago | go on |
//! | Suspect | not confirmed lately; no other client can have it, for [`valid_for`](MutexGuard::valid_for) | begin nothing new |
//! | Lost | another client may have it; this is final | stop |
//!
//! [`check`](MutexGuard::check) passes while Held or Suspect, [`verify`](MutexGuard::verify)
//! asks the quorum now, and [`events`](MutexGuard::events) is a channel for `select!`.
//! A waiter keeps its place in the queue if the client reconnects to any server of the list
//! before the session expires.
//!
//! # The two transports
//!
//! [`Client::connect`] speaks ZooKeeper's protocol itself. [`Client::from_zookeeper`] is for
//! programs that own a handle of the `zookeeper` crate; it is as safe, but does less, because the
//! handle reports little. The table was measured with version 0.8.0 of the crate and ZooKeeper
//! 3.8.0.
//!
//! | | [`Client::connect`] | [`Client::from_zookeeper`] | Why |
//! |---|---|---|---|
//! | connection lost and back in time | Suspect, then Held again | guards are Lost at once, waiters queue again | the crate ends after one reset of a busy connection, and does not report a *new* session |
//! | network swallows packets | Suspect after T/3, Lost after T/2, both by the clock | the same, with a T of at most 4 s unless [`Client::from_zookeeper_within`] states what the servers grant; calls are given up after T, and the client with them | the crate blocks forever in `exists` and `close`, and reports no change |
//! | watches after a reconnect | set again | set by new attempts only | the crate forgets them |
//! | server refuses connections | tries again with growing pauses | the client ends | the crate reconnects 1,600 times a second, then ends for good |
//! | one unknown host among good ones | a warning | there is no handle | the crate fails |
//! | proof that the lock is held | one check-only transaction for all locks | a refused delete and a read, for each lock | the crate has no transactions |
//! | uncontended lock | one round trip | three | the crate has no pipeline, and does not report the owner of a new node |
//! | [`MultiLock`] | one transaction | in the order of paths, with roll-back | the crate has no transactions |
//! | lost reply to a create | found again, after a `sync` | counts as a lost connection | the crate has no `sync` |
//! | directories of locks | containers, which the server deletes when idle | stay | the crate sends the wrong request for containers |
//! | [`Client::session_id`] | the server's | a number of this library's | the crate does not report it |
//! | TLS, credentials, dialect, access control lists | [`Client::builder`] | the handle's credentials; defaults for the rest | |
//! | background threads | two a client | five, and the crate's | |
//!
//! # Testing a batch job
//!
//! With the feature `embedded`, a ZooKeeper server runs inside the test: in memory, on a free
//! port of the loopback interface, started in milliseconds. It misbehaves on request, so a
//! test can show that a job stops when its lock is lost:
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
//! /// The job, under the guard of any lock.
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
//! // Another client gets the lock, with a higher token.
//! let next = other.mutex("/locks/nightly")?.try_lock_for(Duration::from_secs(10))?;
//! assert!(guard.fencing_token() < next.expect("it is free").fencing_token());
//! assert!(guard.unlock().is_err());
//! # Ok(())
//! # }
//! ```
//!
//! A connection that breaks and comes back costs no lock. The guard's
//! [`events`](MutexGuard::events) show it, and a test can wait for them instead of sleeping:
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
//! guard.check()?; // not confirmed, but still held
//! assert_eq!(guard.events().recv(), Ok(GuardEvent::Held));
//! # Ok(())
//! # }
//! ```
//!
//! The job does not start on a second machine while it runs on the first:
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
//! Short session timeouts make tests fast; set them with `Server::builder().tick(..)` and
//! [`ClientBuilder::session_timeout`].
//!
//! # Clocks and units
//!
//! All times are [`Duration`](std::time::Duration)s and
//! [`Instant`](std::time::Instant)s. The validity of a lock is measured by a clock that goes on
//! while the machine sleeps (`CLOCK_BOOTTIME` on Linux). Machines need not agree on the time of
//! day: the ensemble measures how long a session lives, and each machine how long its guards are
//! valid, from the moment at which the last confirmed check was *sent*, and from an earlier
//! message that had reached the leader by then. Their clocks may differ in speed by one percent;
//! `docs/guarantees.md` derives the rule and states its conditions.
//!
//! # Features
//!
//! Features are additive: none changes what another does.
//!
//! | Feature | Gives | Default |
//! |---|---|---|
//! | `zookeeper` | [`Client::from_zookeeper`] | yes |
//! | `tls` | encrypted connections, `ClientBuilder::tls` | no |
//! | `embedded` | `zklock::embedded`, a server for development and tests | no |
//! | `cli` | the program `zklock`, flock(1) for a cluster | no |
//! | `metrics` | the numbers of [`Client::metrics`] through the `metrics` crate's facade | no |
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
// The embedded server uses one half of it.
#[cfg_attr(not(feature = "embedded"), allow(dead_code))]
mod jute;
mod local;
mod lock;
#[cfg(feature = "mysql")]
pub mod mysql;
#[doc(hidden)]
pub mod recipe;
mod session;
#[cfg(zklock_sim)]
#[doc(hidden)]
pub mod sim;
/// What unit tests share with those in `tests`.
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
mod system;
mod time;
mod transport;

pub use crate::acl::{Acl, Permission};
pub use crate::builder::ClientBuilder;
pub use crate::client::Client;
pub use crate::contender::Contender;
pub use crate::error::{Error, LostReason, Result};
pub use crate::guard::{FencingToken, GuardEvent, GuardState, LockGuard};
pub use crate::metrics::{Histogram, Metrics, Requests};
pub use crate::multi_lock::{MultiGuard, MultiLock, SendMultiGuard};
pub use crate::mutex::{Mutex, MutexGuard, SendGuard};
pub use crate::options::{LockOptions, Waiting};
pub use crate::owner::Owner;
pub use crate::recipe::dialect::{Dialect, Role};
pub use crate::reentrant_mutex::{ReentrantMutex, ReentrantMutexGuard};
pub use crate::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard, SendReadGuard, SendWriteGuard};
pub use crate::semaphore::{Permit, Semaphore};
#[cfg(feature = "tls")]
pub use crate::tls::Tls;
pub use crate::transport::session_state::{SessionEvent, SessionState};
