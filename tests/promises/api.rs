//! The public surface: every signature that programs are written against.
//!
//! All code here must compile; only the conversions to function pointers run.

use std::fmt::{Debug, Display};
use std::ops::ControlFlow;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::Receiver;
use zklock::{
    Acl, Client, ClientBuilder, Contender, Dialect, Error, FencingToken, GuardEvent, GuardState,
    Job, JobOptions, LockGuard, LockOptions, MultiGuard, MultiLock, Mutex, MutexGuard, Once,
    Outcome, Owner, Permit, ReentrantMutex, ReentrantMutexGuard, Result, Role, Run, RunRecord,
    RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SendMutexGuard, SessionEvent,
    SessionState, Standby, Term, Waiting,
};

/// The last two traits let a type into `catch_unwind`.
fn shared<T: Clone + Debug + Send + Sync + 'static + UnwindSafe + RefUnwindSafe>() {}
fn guard<T: LockGuard + Debug + 'static + UnwindSafe + RefUnwindSafe>() {}

#[test]
fn a_client_has_what_was_promised() {
    shared::<Client>();
    let _: fn(&str) -> Result<Client> = Client::connect;
    let _: fn(&str) -> ClientBuilder = Client::builder;
    #[cfg(feature = "zookeeper")]
    let _: fn(zookeeper::ZooKeeper, Duration) -> Result<Client> = Client::from_zookeeper;
    let _: fn(&Client, &str) -> Result<Mutex> = Client::mutex;
    let _: fn(&Client, &str) -> Result<ReentrantMutex> = Client::reentrant_mutex;
    let _: fn(&Client, &str) -> Result<RwLock> = Client::rwlock;
    let _: fn(&Client, &str, u32) -> Result<Semaphore> = Client::semaphore;
    let _ = |client: &Client| -> Result<MultiLock> { client.multi_lock(["/a", "/b"]) };
    let _ = |client: &Client, paths: &[String]| -> Result<MultiLock> {
        client.multi_lock(paths.iter().map(String::as_str))
    };
    let _: fn(&Client, &str) -> Result<Vec<Contender>> = Client::contenders;
    let _: fn(&Client) -> i64 = Client::session_id;
    let _: fn(&Client) -> Duration = Client::session_timeout;
    let _: fn(&Client) -> SessionState = Client::state;
    let _: fn(&Client) -> Receiver<SessionEvent> = Client::events;
    let _: fn(&Client) -> Result<()> = Client::close;
    let _ = [
        SessionState::Connecting,
        SessionState::Connected,
        SessionState::Closed,
        SessionState::AuthFailed,
    ];
}

#[test]
fn a_job_and_a_standby_have_what_was_promised() {
    shared::<Job>();
    shared::<Standby>();
    shared::<RunRecord>();
    let _: fn(&Client, &str) -> Result<Job> = Client::job;
    let _: fn(&Client, &str) -> Result<Standby> = Client::standby;
    let _ = |job: &Job| -> Result<Once<u8, String>> {
        job.once("a", |run: &Run<'_>| match run.retry_of() {
            Some(record) => Err(record.slot().to_owned()),
            None => Ok(1),
        })
    };
    let _ = |job: &Job, told: Receiver<()>, until: Instant| -> Result<Once<(), Error>> {
        let options = JobOptions::new().wait(false).deadline(until).cancel(told);
        let options = options.any_order(true).again(false).keep(20);
        let options = options.max_time(Duration::from_secs(7_200));
        job.once_with("a", options.attempts(3).note("a"), |run: &Run<'_>| {
            run.check()
        })
    };
    let _ = |job: &Job| -> Result<Once<u32, Error>> {
        job.at_most_every(Duration::from_secs(60), |run: &Run<'_>| {
            let _: (&str, FencingToken, GuardState) =
                (run.slot(), run.fencing_token(), run.guard_state());
            let last: Option<&[u8]> = run.state();
            run.set_state(last.map_or_else(Vec::new, <[u8]>::to_vec))?;
            run.set_state("2026-11-22")?;
            run.verify().map(|()| run.attempt())
        })
    };
    let _ = |once: Once<u8, String>| match once {
        Once::Done(value) => value.to_string(),
        Once::DoneBefore(record) | Once::NoAttemptsLeft(record) => record.slot().to_owned(),
        Once::Running(contender) => contender.node().to_owned(),
        Once::Failed(error) => error,
    };
    let _: fn(&Job) -> Result<Option<RunRecord>> = Job::last;
    let _: fn(&Job) -> Result<Option<RunRecord>> = Job::last_failure;
    let _: fn(&RunRecord) -> SystemTime = RunRecord::started;
    let _: fn(&RunRecord) -> Option<SystemTime> = RunRecord::ended;
    let _: fn(&RunRecord) -> FencingToken = RunRecord::token;
    let _: fn(&RunRecord) -> &Owner = RunRecord::owner;
    let _: fn(&RunRecord) -> Outcome = RunRecord::outcome;
    let _ = [Outcome::Done, Outcome::Failed, Outcome::Unknown];
    let _ = |standby: &Standby, cancel: Receiver<()>| -> Result<()> {
        standby.run(|_: &Term<'_>| ControlFlow::Break(()))?;
        standby.run_until(cancel, |term| match term.is_valid() && !term.revoked() {
            true => ControlFlow::Continue(()),
            false => {
                term.resign();
                ControlFlow::Break(())
            }
        })
    };
    let _: fn(&Standby) -> Result<Option<Contender>> = Standby::leader;
}

#[test]
fn a_builder_has_what_was_promised() {
    let _: fn(ClientBuilder, Duration) -> ClientBuilder = ClientBuilder::session_timeout;
    let _: fn(ClientBuilder, Duration) -> ClientBuilder = ClientBuilder::connect_timeout;
    let _ = |builder: ClientBuilder| builder.auth("digest", "jo:secret").auth("x", vec![1_u8]);
    let _: fn(ClientBuilder, Acl) -> ClientBuilder = ClientBuilder::acl;
    let _: fn() -> Acl = Acl::creator_all;
    let _: fn(ClientBuilder, Dialect) -> ClientBuilder = ClientBuilder::dialect;
    let _: fn(ClientBuilder, &str) -> ClientBuilder = ClientBuilder::note;
    #[cfg(feature = "tls")]
    let _: fn(ClientBuilder, zklock::Tls) -> ClientBuilder = ClientBuilder::tls;
    let _: fn(ClientBuilder) -> Result<Client> = ClientBuilder::connect;
    let _ = [Dialect::Curator, Dialect::Kazoo, Dialect::Recipe];
}

#[test]
fn a_mutex_has_what_was_promised() {
    shared::<Mutex>();
    guard::<MutexGuard>();
    let _: fn(&Mutex) -> Result<MutexGuard> = Mutex::lock;
    let _: fn(&Mutex) -> Result<Option<MutexGuard>> = Mutex::try_lock;
    let _: fn(&Mutex, Duration) -> Result<Option<MutexGuard>> = Mutex::try_lock_for;
    let _: fn(&Mutex, Instant) -> Result<Option<MutexGuard>> = Mutex::try_lock_until;
    let _: fn(&Mutex, LockOptions<'_>) -> Result<Option<MutexGuard>> = Mutex::lock_with;
    let _: fn(&Mutex) -> &str = Mutex::path;
    let _: fn(&MutexGuard) -> FencingToken = MutexGuard::fencing_token;
    let _: fn(&MutexGuard) -> &str = MutexGuard::node;
    let _: fn(MutexGuard) -> SendMutexGuard = MutexGuard::into_send;
    fn send<T: Send>() {}
    send::<SendMutexGuard>();
    send::<Permit>();
}

/// Fails to compile for a type that is `Send`: there are two candidates for `A<_>` then.
macro_rules! stays_with_its_thread {
    ($($guard:ty)*) => {$({
        trait Ambiguous<T> {
            fn place() {}
        }
        impl<T: ?Sized> Ambiguous<()> for T {}
        impl<T: ?Sized + Send> Ambiguous<u8> for T {}
        <$guard as Ambiguous<_>>::place();
    })*};
}

#[test]
fn types_go_from_thread_to_thread_as_documented() {
    fn free<T: Send + Sync + 'static>() {}
    fn goes<T: Send + Sync>() {}
    shared::<MultiLock>();
    free::<SendMutexGuard>();
    free::<zklock::SendReadGuard>();
    free::<zklock::SendWriteGuard>();
    free::<zklock::SendMultiGuard>();
    free::<Permit>();
    shared::<ClientBuilder>();
    shared::<Contender>();
    shared::<Error>();
    shared::<Waiting>();
    shared::<Owner>();
    shared::<Acl>();
    shared::<zklock::diagnostics::Metrics>();
    shared::<zklock::LostReason>();
    shared::<SessionEvent>();
    #[cfg(feature = "tls")]
    shared::<zklock::Tls>();
    #[cfg(feature = "embedded")]
    goes::<zklock::embedded::Server>();
    #[cfg(feature = "mysql")]
    {
        use zklock::mysql;
        shared::<mysql::Client>();
        shared::<mysql::Mutex>();
        shared::<mysql::ReentrantMutex>();
        shared::<mysql::Job>();
        guard::<mysql::MutexGuard>();
        guard::<mysql::ReentrantMutexGuard>();
        guard::<mysql::SendMutexGuard>();
    }
    fn is_shared<T: Sync>() {}
    is_shared::<MutexGuard>();
    is_shared::<ReentrantMutexGuard>();
    is_shared::<RwLockReadGuard>();
    is_shared::<RwLockWriteGuard>();
    is_shared::<MultiGuard>();
    stays_with_its_thread! {
        MutexGuard ReentrantMutexGuard RwLockReadGuard RwLockWriteGuard MultiGuard
    }
    let _: Result<u8, std::io::Error> = Ok(1);
}

#[test]
fn options_have_what_was_promised() {
    let cancelled = crossbeam_channel::never();
    let mut told = 0;
    let _ = LockOptions::new()
        .deadline(Instant::now())
        .cancel(cancelled)
        .note("text for those who wait")
        .evict_overdue(Duration::MAX, Duration::MAX)
        .on_wait(|_: &Waiting| told += 1);
    let _: fn(&Waiting) -> usize = Waiting::position;
    let _: fn(&Waiting) -> Option<&Contender> = Waiting::ahead;
    let _: fn(&Waiting) -> Duration = Waiting::since;
}

macro_rules! check_guard {
    ($($name:ident $guard:ident)*) => {$(
        #[test]
        fn $name() {
            guard::<$guard>();
            let _: fn(&$guard) -> Result<()> = $guard::check;
            let _: fn(&$guard) -> Result<()> = $guard::verify;
            let _: fn(&$guard) -> bool = $guard::is_valid;
            let _: fn(&$guard) -> GuardState = $guard::state;
            let _: fn(&$guard) -> Duration = $guard::valid_for;
            let _: fn(&$guard) -> &Receiver<GuardEvent> = $guard::events;
            let _: fn($guard) -> Result<()> = $guard::unlock;
        }
    )*};
}

check_guard! {
    the_guard_of_a_mutex MutexGuard
    a_guard_that_changes_threads SendMutexGuard
    the_guard_of_a_reentrant_mutex ReentrantMutexGuard
    the_guard_of_a_reader RwLockReadGuard
    the_guard_of_a_writer RwLockWriteGuard
    the_guard_of_several_mutexes MultiGuard
    a_permit Permit
}

#[test]
fn the_other_locks_have_the_same_ways_in() {
    shared::<ReentrantMutex>();
    type Reentrant = Result<Option<ReentrantMutexGuard>>;
    let _: fn(&ReentrantMutex) -> Result<ReentrantMutexGuard> = ReentrantMutex::lock;
    let _: fn(&ReentrantMutex) -> Reentrant = ReentrantMutex::try_lock;
    let _: fn(&ReentrantMutex, Duration) -> Reentrant = ReentrantMutex::try_lock_for;
    let _: fn(&ReentrantMutex, Instant) -> Reentrant = ReentrantMutex::try_lock_until;
    let _: fn(&ReentrantMutex, LockOptions<'_>) -> Reentrant = ReentrantMutex::lock_with;
    let _: fn(&ReentrantMutexGuard) -> FencingToken = ReentrantMutexGuard::fencing_token;
    let _: fn(&ReentrantMutexGuard) -> &str = ReentrantMutexGuard::node;

    shared::<RwLock>();
    type Reader = Result<Option<RwLockReadGuard>>;
    type Writer = Result<Option<RwLockWriteGuard>>;
    let _: fn(&RwLock) -> Result<RwLockReadGuard> = RwLock::read;
    let _: fn(&RwLock) -> Reader = RwLock::try_read;
    let _: fn(&RwLock, Duration) -> Reader = RwLock::try_read_for;
    let _: fn(&RwLock, Instant) -> Reader = RwLock::try_read_until;
    let _: fn(&RwLock, LockOptions<'_>) -> Reader = RwLock::read_with;
    let _: fn(&RwLock) -> Result<RwLockWriteGuard> = RwLock::write;
    let _: fn(&RwLock) -> Writer = RwLock::try_write;
    let _: fn(&RwLock, Duration) -> Writer = RwLock::try_write_for;
    let _: fn(&RwLock, Instant) -> Writer = RwLock::try_write_until;
    let _: fn(&RwLock, LockOptions<'_>) -> Writer = RwLock::write_with;
    let _: fn(RwLockWriteGuard) -> Result<RwLockReadGuard> = RwLockWriteGuard::downgrade;
    let _: fn(&RwLockWriteGuard) -> FencingToken = RwLockWriteGuard::fencing_token;
    let _: fn(&RwLockReadGuard) -> FencingToken = RwLockReadGuard::fencing_token;

    shared::<Semaphore>();
    let _: fn(&Semaphore) -> Result<Permit> = Semaphore::acquire;
    let _: fn(&Semaphore) -> Result<Option<Permit>> = Semaphore::try_acquire;
    let _: fn(&Semaphore, Duration) -> Result<Option<Permit>> = Semaphore::try_acquire_for;
    let _: fn(&Semaphore, Instant) -> Result<Option<Permit>> = Semaphore::try_acquire_until;
    let _: fn(&Semaphore, LockOptions<'_>) -> Result<Option<Permit>> = Semaphore::acquire_with;

    shared::<MultiLock>();
    let _: fn(&MultiLock) -> Result<MultiGuard> = MultiLock::lock;
    let _: fn(&MultiLock) -> Result<Option<MultiGuard>> = MultiLock::try_lock;
    let _: fn(&MultiLock, Duration) -> Result<Option<MultiGuard>> = MultiLock::try_lock_for;
    let _: fn(&MultiLock, Instant) -> Result<Option<MultiGuard>> = MultiLock::try_lock_until;
    let _: fn(&MultiLock, LockOptions<'_>) -> Result<Option<MultiGuard>> = MultiLock::lock_with;
    let _ = |guard: &MultiGuard| guard.tokens().count();
}

#[test]
fn a_contender_has_what_was_promised() {
    let _: fn(&Contender) -> &str = Contender::node;
    let _: fn(&Contender) -> Role = Contender::role;
    let _: fn(&Contender) -> bool = Contender::holds;
    let _: fn(&Contender) -> i64 = Contender::session_id;
    let _: fn(&Contender) -> FencingToken = Contender::token;
    let _: fn(&Contender) -> SystemTime = Contender::since;
    let _: fn(&Contender) -> &Owner = Contender::owner;
    let _: fn(&Contender) -> Result<()> = Contender::revoke;
    let _: fn(&Contender) -> Result<()> = Contender::evict;
    let _ = [Role::Exclusive, Role::Read, Role::Write, Role::Permit];
}

#[test]
fn values_have_what_was_promised() {
    fn token<T: Copy + Display + Ord>() {}
    token::<FencingToken>();
    let _: fn(FencingToken) -> i64 = FencingToken::get;
    let _ = [GuardState::Held, GuardState::Suspect, GuardState::Lost];
    let _ = [
        GuardEvent::Suspect,
        GuardEvent::Held,
        GuardEvent::Lost,
        GuardEvent::RevokeRequested,
    ];
    fn error<T: std::error::Error + Send + Sync + 'static>() {}
    error::<Error>();
    let _: fn(&Error) -> bool = Error::is_lost;
    let _ = |error: &Error| match error {
        Error::Lost { path, why } => path.len() + why.to_string().len(),
        Error::Suspect { path } | Error::WouldDeadlock { path } => path.len(),
        Error::Evicted { .. } | Error::ForeignContender { .. } | Error::BadPath { .. } => 1,
        Error::BadHosts { .. } | Error::ConnectTimeout { .. } | Error::AuthFailed => 2,
        Error::NoAuth { .. } | Error::Closed | Error::SessionExpired => 3,
        Error::Refused { code, path, .. } => path.len() + *code as usize,
        _ => 4,
    };
}

#[cfg(feature = "embedded")]
#[test]
fn the_embedded_server_has_what_was_promised() -> std::result::Result<(), Box<dyn std::error::Error>>
{
    let server = zklock::embedded::Server::start()?;
    let client = Client::connect(server.hosts())?;
    server.expire_session(client.session_id());
    server.disconnect_all();
    server.refuse();
    server.resume();
    Ok(())
}
