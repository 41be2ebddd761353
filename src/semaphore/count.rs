//! The number of a semaphore's permits: reading it, writing it down, and waiting for those
//! who go by another.

use std::slice;
use std::time::{Duration, Instant};

use super::{Counts, Look, Semaphore};
use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::jute::Names;
use crate::jute::{ErrorCode, Op, Reply, Request, failure};
use crate::lock::raw_guard::RawGuard;
use crate::lock::request::{Ahead, LockRequest};
use crate::recipe::attempt::Patience;
use crate::recipe::dialect::Dialect;
use crate::recipe::name::NodeName;
use crate::recipe::permits::{Agreement, compare};
use crate::recipe::queue::beside_semaphore;
use crate::session::caller::{over, refused};
use crate::session::queries::Lasting;
use crate::time::limit::{Limit, LimitReached};
use crate::transport::Failure;

impl Semaphore {
    /// Fails if somebody goes by another number and the caller has no time to wait for him;
    /// `false` if the time is over.
    pub(super) fn is_open(&self, request: &LockRequest<'_>) -> Result<bool> {
        loop {
            let Some(look) = self.look(&request.limit)? else {
                return Ok(false);
            };
            let Some((theirs, holder, _)) = self.other(&look)? else {
                return Ok(true);
            };
            if is_patient(request) {
                return Ok(true);
            }
            if let Some(holder) = holder {
                return Err(self.disagreement(theirs, &holder));
            }
        }
    }

    /// Compares the numbers on behalf of the first in the line, and has the semaphore go by
    /// ours as soon as nobody goes by another.
    pub(super) fn agree(&self, first: &RawGuard, request: &mut LockRequest<'_>) -> Result<Counts> {
        let limit = request.limit.clone();
        loop {
            let Some(look) = self.look(&limit)? else {
                return Ok(Counts::LimitReached);
            };
            if look.absent && self.speaks_kazoo() {
                // Whoever makes it says how many permits there are, and nobody else does.
                let (number, path) = (self.permits.to_string(), [self.path.to_string()]);
                let mut caller = self.session().caller();
                let lasting = Lasting::Always(number.as_bytes());
                self.session()
                    .make_directories(&mut caller, &path, lasting, &limit)?;
                continue;
            }
            match look.agreement {
                Agreement::Agreed | Agreement::Unknown => return Ok(Counts::Alike),
                Agreement::Differs(_) => match self.await_others(&look, first, request)? {
                    Ok(()) => continue,
                    Err(counts) => return Ok(counts),
                },
                Agreement::Replace(theirs) => log::warn!(
                    "the semaphore {} had {theirs} permits, and has {} from now on",
                    self.path,
                    self.permits,
                ),
                Agreement::Write => {}
            }
            match self.write(first, look.version, &limit)? {
                Ok(()) => return Ok(Counts::Alike),
                // Somebody else has written: see what.
                Err(ErrorCode::BAD_VERSION) => {}
                Err(ErrorCode::NO_NODE) => return Ok(Counts::Lost),
                // It is ours to count if it is nobody else's.
                Err(ErrorCode::NO_AUTH) if look.agreement == Agreement::Write => {
                    return Ok(Counts::Alike);
                }
                Err(ErrorCode::OPERATION_TIMEOUT) => return Ok(Counts::LimitReached),
                Err(code) => return Err(refused(&self.path, code)),
            }
        }
    }

    /// Waits until one of those has gone who go by another number.
    fn await_others(
        &self,
        look: &Look,
        first: &RawGuard,
        request: &mut LockRequest<'_>,
    ) -> Result<std::result::Result<(), Counts>> {
        let Some((theirs, holder, last)) = self.other(look)? else {
            return Ok(Ok(()));
        };
        // Who has gone meanwhile need not be waited for.
        let Some(holder) = holder else {
            return Ok(Ok(()));
        };
        if !is_patient(request) {
            return Err(self.disagreement(theirs, &holder));
        }
        if let Some(told) = request.on_wait.as_mut() {
            told(&Ahead {
                since: request.limit.begun.elapsed(),
                count: look.out.len(),
                ..holder.clone()
            });
        }
        if first.check().is_err() {
            return Ok(Err(Counts::Lost));
        }
        if self
            .session()
            .touched(&last, first.events(), &request.limit)?
            .is_ok()
        {
            return Ok(Ok(()));
        }
        let late = |deadline| deadline <= Instant::now();
        match request.limit.deadline().is_some_and(late) {
            true => Err(self.disagreement(theirs, &holder)),
            false => Ok(Err(Counts::LimitReached)),
        }
    }

    /// Who has been going by another number for longest, unless he has gone, and the node of
    /// the last one who does.
    fn other(&self, look: &Look) -> Result<Option<(u32, Option<Ahead>, String)>> {
        let Agreement::Differs(theirs) = look.agreement else {
            return Ok(None);
        };
        let number = |name: &&str| NodeName::parse(name).map_or(0, |name| name.sequence);
        let out = || look.out.iter();
        let (Some(oldest), Some(last)) = (out().min_by_key(number), out().max_by_key(number))
        else {
            return Ok(None);
        };
        let node = |name| format!("{}/{name}", self.leases());
        let nearest = node(oldest);
        let read = self.session().describe(slice::from_ref(&nearest))?.pop();
        let holder = read.flatten().map(|(data, stat)| Ahead {
            since: Duration::ZERO,
            count: 0,
            nearest,
            holds: true,
            data,
            stat,
        });
        Ok(Some((theirs, holder, node(last))))
    }

    /// Reads the number and lists the permits; `None` if the time is over.
    pub(super) fn look(&self, limit: &Limit) -> Result<Option<Look>> {
        let dialect = self.session().settings.dialect;
        let mut requests = vec![Request::get(&self.path), Request::list(&self.path)];
        if !self.speaks_kazoo() {
            requests.push(Request::list(&self.leases()));
        }
        let Some(answers) = self.session().read_all(&requests, limit)? else {
            return Ok(None);
        };
        let mut answers = answers.into_iter();
        let (data, version, absent) = match answers.next() {
            Some(Ok(Reply::Data { data, stat })) => (Some(data), stat.version, false),
            Some(Err(ErrorCode::NO_NODE)) => (None, -1, true),
            Some(Err(ErrorCode::NO_AUTH)) => (None, -1, false),
            Some(Err(code)) => return Err(refused(&self.path, code)),
            _ => (None, -1, false),
        };
        let mut names = |dir: &str| match answers.next() {
            Some(Ok(Reply::Children { names, .. })) => Ok(names),
            Some(Err(code)) if !matches!(code, ErrorCode::NO_NODE | ErrorCode::NO_AUTH) => {
                Err(refused(dir, code))
            }
            _ => Ok(Names::default()),
        };
        let own = names(&self.path)?;
        if let Some(foreign) = beside_semaphore(dialect, &own) {
            return Err(self.session().foreign(&self.path, foreign));
        }
        let out = match self.speaks_kazoo() {
            true => own,
            false => names(&self.leases())?,
        };
        Ok(Some(Look {
            agreement: compare(dialect, data.as_deref(), self.permits, out.len()),
            out,
            version,
            absent,
        }))
    }

    /// Writes the number down if it is the one that was read and we are still the first in
    /// the line; both are looked at in the transaction that writes.
    fn write(
        &self,
        first: &RawGuard,
        version: i32,
        limit: &Limit,
    ) -> Result<std::result::Result<(), ErrorCode>> {
        let (path, data) = (self.path.to_string(), self.permits.to_string().into_bytes());
        let request = match self.session().transport.capabilities().multi {
            true => Request::Multi(vec![
                Op::Check {
                    path: first.node().to_owned(),
                    version: -1,
                },
                Op::SetData {
                    path,
                    data: data.into(),
                    version,
                },
            ]),
            false => Request::SetData {
                path,
                data: data.into(),
                version,
            },
        };
        Ok(match self.session().caller().insist(&request, limit)? {
            Ok(Ok(Reply::Multi(results))) => failure(&results).map_or(Ok(()), Err),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(Failure::Refused(code))) => Err(code),
            Ok(Err(Failure::TooLong(long))) => return Err(long.about(&self.path)),
            Ok(Err(Failure::Closed)) => return Err(over(&self.session().status.snapshot())),
            Ok(Err(Failure::Lost | Failure::NotSent)) | Err(LimitReached) => {
                Err(ErrorCode::OPERATION_TIMEOUT)
            }
        })
    }

    fn disagreement(&self, theirs: u32, holder: &Ahead) -> Error {
        let Ahead {
            nearest,
            holds,
            stat,
            data,
            ..
        } = holder;
        let holder = Contender::new(self.session(), nearest.clone(), *holds, *stat, data);
        Error::PermitsDisagree {
            path: self.path.to_string(),
            ours: self.permits,
            theirs,
            holder: holder.named(),
            since: holder.since(),
        }
    }

    pub(super) fn speaks_kazoo(&self) -> bool {
        self.session().settings.dialect == Dialect::Kazoo
    }
}

/// Without a limit, what may be a mistake would be waited for without end.
fn is_patient(request: &LockRequest<'_>) -> bool {
    request.patience == Patience::Waits && request.limit.deadline().is_some()
}
