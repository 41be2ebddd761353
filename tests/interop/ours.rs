//! Our contenders: a thread and a client for each, controlled like the peers.

use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, never, select, unbounded};
use zklock::{
    Client, Dialect, Error, GuardEvent, LockOptions, MutexGuard, Permit, Result, RwLockReadGuard,
    RwLockWriteGuard,
};

use super::contender::{Contender, Said};
use super::peer::SESSION;

/// The guard of one of our contenders.
enum Held {
    Mutex(MutexGuard),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Permit(Permit),
    Term(Term),
}

/// A term of a standby, on a thread of its own.
struct Term {
    node: String,
    events: Receiver<GuardEvent>,
    end: Sender<()>,
    ended: Receiver<Result<()>>,
}

/// Starts a contender with a client of its own.
pub(crate) fn contender(hosts: &str, dialect: Dialect) -> Contender {
    let client = Client::builder(hosts)
        .dialect(dialect)
        .session_timeout(SESSION)
        .connect()
        .expect("connecting to the test's server");
    start_with(client)
}

/// Starts a contender that uses this client.
pub(crate) fn start_with(client: Client) -> Contender {
    let (tell, told) = unbounded();
    let (say, said) = unbounded();
    thread::spawn(move || obey_all(&client, &told, &say));
    let tell = move |text: &str| {
        // The thread listens for as long as the contender exists.
        drop(tell.send(text.to_owned()));
    };
    Contender::new(Box::new(tell), said)
}

fn obey_all(client: &Client, told: &Receiver<String>, say: &Sender<Said>) {
    let silence = never();
    let mut held = None;
    loop {
        let events = held.as_ref().map_or(&silence, Held::events);
        let answer = select! {
            recv(events) -> event => match event {
                Ok(GuardEvent::RevokeRequested) => Said::Revoked,
                _ => continue,
            },
            recv(told) -> line => match line {
                Ok(line) => obey(client, &line, &mut held, say).unwrap_or_else(tell_of),
                Err(_) => return,
            },
        };
        // A test that has heard enough drops its contender.
        drop(say.send(answer));
    }
}

fn obey(client: &Client, line: &str, held: &mut Option<Held>, say: &Sender<Said>) -> Result<Said> {
    let words: Vec<_> = line.split(' ').collect();
    match words[..] {
        ["lock", kind, path] => {
            let Some(guard) = lock(client, kind, path, say)? else {
                return Ok(Said::Late);
            };
            let node = guard.node().to_owned();
            *held = Some(guard);
            Ok(Said::Held(node))
        }
        ["release"] => {
            held.take().expect("something to release").unlock()?;
            Ok(Said::Released)
        }
        ["downgrade"] => {
            let Some(Held::Write(guard)) = held.take() else {
                panic!("only writers are downgraded")
            };
            let guard = guard.downgrade()?;
            let node = guard.node().to_owned();
            *held = Some(Held::Read(guard));
            Ok(Said::Held(node))
        }
        ["revoke", node] => {
            let (path, _) = node.rsplit_once('/').expect("a node in a directory");
            for contender in client.contenders(path)? {
                if contender.node() == node {
                    contender.revoke()?;
                }
            }
            Ok(Said::Done)
        }
        ref other => panic!("unknown command {other:?}"),
    }
}

fn lock(client: &Client, kind: &str, path: &str, say: &Sender<Said>) -> Result<Option<Held>> {
    let mut parts = kind.split(':');
    let kind = parts.next().unwrap_or_default();
    let mut numbers = parts.map(|part| part.parse().expect("a number"));
    let permits = numbers.next().unwrap_or(1);
    let count = numbers.next().unwrap_or(1);
    let limit = numbers
        .next()
        .map(|limit| Duration::from_millis(limit.into()));
    let waits = || {
        let options = LockOptions::new();
        let options = match limit {
            Some(limit) => options.deadline(Instant::now() + limit),
            None => options,
        };
        options.on_wait(|_| {
            // As above.
            drop(say.send(Said::Waiting));
        })
    };
    Ok(match kind {
        "mutex" => client.mutex(path)?.lock_with(waits())?.map(Held::Mutex),
        "standby" => return lead(client, path, say).map(|term| Some(Held::Term(term))),
        "read" => client.rwlock(path)?.read_with(waits())?.map(Held::Read),
        "write" => client.rwlock(path)?.write_with(waits())?.map(Held::Write),
        "semaphore" => client
            .semaphore(path, permits)?
            .acquire_many_with(count, waits())?
            .map(Held::Permit),
        other => panic!("unknown kind {other}"),
    })
}

/// Stands by until it leads.
fn lead(client: &Client, path: &str, say: &Sender<Said>) -> Result<Term> {
    let say = say.clone();
    let standby = client.standby(path)?.on_wait(move |_| {
        // As above.
        drop(say.send(Said::Waiting));
    });
    let (lead, leads) = bounded(1);
    let (end, told) = bounded(1);
    let (to, ended) = bounded(1);
    thread::spawn(move || {
        let done = standby.run(|term| {
            drop(lead.send((term.node().to_owned(), term.events().clone())));
            let _ = told.recv();
            ControlFlow::Break(())
        });
        drop(to.send(done));
    });
    select! {
        recv(leads) -> term => if let Ok((node, events)) = term {
            return Ok(Term { node, events, end, ended });
        },
        recv(ended) -> done => if let Ok(Err(error)) = done {
            return Err(error);
        },
    }
    Err(ended
        .recv()
        .ok()
        .and_then(Result::err)
        .unwrap_or(Error::Closed))
}

fn tell_of(error: Error) -> Said {
    match error {
        Error::ForeignContender {
            node,
            library,
            dialect,
        } => Said::Refused {
            node,
            library,
            dialect,
        },
        other => Said::Error(other.to_string()),
    }
}

impl Held {
    fn node(&self) -> &str {
        match self {
            Self::Mutex(guard) => guard.node(),
            Self::Read(guard) => guard.node(),
            Self::Write(guard) => guard.node(),
            Self::Permit(guard) => guard.node(),
            Self::Term(term) => &term.node,
        }
    }

    fn events(&self) -> &Receiver<GuardEvent> {
        match self {
            Self::Mutex(guard) => guard.events(),
            Self::Read(guard) => guard.events(),
            Self::Write(guard) => guard.events(),
            Self::Permit(guard) => guard.events(),
            Self::Term(term) => &term.events,
        }
    }

    fn unlock(self) -> Result<()> {
        match self {
            Self::Mutex(guard) => guard.unlock(),
            Self::Read(guard) => guard.unlock(),
            Self::Write(guard) => guard.unlock(),
            Self::Permit(guard) => guard.unlock(),
            Self::Term(term) => {
                let _ = term.end.send(());
                term.ended.recv().expect("an end")
            }
        }
    }
}
