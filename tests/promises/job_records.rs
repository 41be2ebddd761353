//! Records of jobs: a job's record can be forgotten, or mended if something has replaced it, and nothing else can.

use std::convert::Infallible;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Acl, Client, Error, Job, LockGuard, Once};

use crate::support::proxy::Proxy;
use crate::support::raw::{EPHEMERAL, PERSISTENT, Raw, op};
use crate::support::{aside, eventually, fresh_path};
use crate::transport::{Place, SOON, on_every_server};

on_every_server! {
    what_is_written_meanwhile_is_not_forgotten
    nobody_forgets_a_job_that_is_run
    a_record_that_was_replaced_is_mended
    what_somebody_keeps_is_not_mended
    a_path_that_somebody_uses_is_not_mended
    what_is_written_meanwhile_is_not_mended
    a_job_takes_over_the_path_of_a_lock_that_nobody_uses
    a_job_takes_over_nothing_that_was_a_jobs_or_is_in_use
    a_job_takes_over_no_number_that_may_be_anybodys
    a_job_takes_over_no_job_that_was_faster
    a_job_that_another_one_has_taken_over_meanwhile_is_a_job
    a_place_that_may_not_be_replaced_stays_a_jobs_for_all_that_come
    a_path_that_is_taken_over_stays_as_open_as_it_was
    a_lock_leaves_no_note_where_a_record_was
}

/// How long an answer takes at least.
const LAG: Duration = Duration::from_millis(500);

const NIGHT: &str = "2026-11-25";

fn scene(place: Place) -> (Job, Raw, String) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("record"));
    let job = place.connect(&hosts).job(&path).unwrap();
    run(&job);
    (job, Raw::connect(&hosts), path)
}

fn once(job: &Job) -> zklock::Result<Once<(), Infallible>> {
    job.once(NIGHT, |_| Ok(()))
}

fn run(job: &Job) {
    let ended = once(job);
    assert!(matches!(ended, Ok(Once::Done(()))), "{ended:?}");
}

/// Does this over a network on which a request of this kind, after the read of the record, arrives after
/// somebody's write.
fn with_a_write_before<T: Send + 'static>(
    place: Place,
    path: &str,
    kind: i32,
    act: impl FnOnce(Job) -> T + Send + 'static,
) -> T {
    let hosts = place.shared().hosts();
    let network = Proxy::start(&hosts);
    let client: Client = place.connect(&network.hosts());
    let job = client.job(path).unwrap();
    network.delay(LAG);
    let ended = aside(move || act(job));
    // Before that, a refused deletion lets the server catch up.
    eventually("it reads", || network.requests(op::GET_DATA) > 0);
    network.blackhole_at_next_request(kind);
    eventually("it is under way", || network.fired());
    Raw::connect(&hosts).set_data(path, b"somebody's").unwrap();
    network.heal();
    ended.recv_timeout(SOON).expect("an end")
}

fn what_is_written_meanwhile_is_not_forgotten(place: Place) {
    let (_, mut raw, path) = scene(place);
    let ended = with_a_write_before(place, &path, op::DELETE, |job| job.forget());
    assert!(matches!(ended, Err(Error::Unmarked { .. })), "{ended:?}");
    assert_eq!(raw.data(&path).unwrap(), b"somebody's");
}

fn nobody_forgets_a_job_that_is_run(place: Place) {
    let (job, _, path) = scene(place);
    let other = place.connect(&place.shared().hosts()).job(&path).unwrap();
    let ended = job.once("2026-11-26", |_| {
        let refused = other.forget();
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
        Ok::<_, Infallible>(())
    });
    assert!(matches!(ended, Ok(Once::Done(()))), "{ended:?}");
    let last = other.forget().unwrap().expect("a run");
    assert_eq!(last.slot(), "2026-11-26");
    assert_eq!(other.forget().unwrap(), None);
    run(&job);
}

fn a_record_that_was_replaced_is_mended(place: Place) {
    let (job, mut raw, path) = scene(place);
    assert_eq!(job.repair().unwrap(), None);
    for data in ["2", "", "127.0.0.1", "{\"job\":1,"] {
        raw.set_data(&path, data.as_bytes()).unwrap();
        // A semaphore leaves these directories for a while.
        for name in ["locks", "leases", "numbers"] {
            raw.create(&format!("{path}/{name}"), b"", PERSISTENT)
                .unwrap();
        }
        assert!(matches!(job.last(), Err(Error::Unmarked { .. })));
        assert_eq!(job.repair().unwrap().as_deref(), Some(data.as_bytes()));
        assert_eq!(job.last().unwrap(), None);
        assert_eq!(raw.children(&path).unwrap(), [""; 0]);
        run(&job);
    }
    assert_eq!(job.repair().unwrap(), None);
    assert!(job.last().unwrap().is_some());
}

fn what_somebody_keeps_is_not_mended(place: Place) {
    let (job, mut raw, path) = scene(place);
    for data in ["somebody's", "{\"held\":null}", "{\"job\":3}"] {
        raw.set_data(&path, data.as_bytes()).unwrap();
        let refused = job.repair();
        assert!(
            matches!(refused, Err(Error::Unmarked { .. })),
            "{refused:?}"
        );
        assert_eq!(raw.data(&path).unwrap(), data.as_bytes());
    }
    raw.delete(&path).unwrap();
    assert_eq!(job.repair().unwrap(), None);
    // This is a contender's node.
    raw.create(&path, b"", EPHEMERAL).unwrap();
    assert!(matches!(job.repair(), Err(Error::Unmarked { .. })));
    assert_eq!(raw.data(&path).unwrap(), b"");
}

fn a_path_that_somebody_uses_is_not_mended(place: Place) {
    let (job, mut raw, path) = scene(place);
    raw.set_data(&path, b"2").unwrap();
    let client = place.connect(&place.shared().hosts());
    let refused = || matches!(job.repair(), Err(Error::Refused { .. }));
    let permit = client.semaphore(&path, 2).unwrap().acquire().unwrap();
    assert!(refused());
    permit.unlock().unwrap();
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    assert!(refused());
    guard.unlock().unwrap();
    assert_eq!(raw.data(&path).unwrap(), b"2");
    assert!(job.repair().unwrap().is_some());
}

fn what_is_written_meanwhile_is_not_mended(place: Place) {
    let (_, mut raw, path) = scene(place);
    raw.set_data(&path, b"2").unwrap();
    let ended = with_a_write_before(place, &path, op::MULTI, |job| job.repair());
    assert!(matches!(ended, Err(Error::Unmarked { .. })), "{ended:?}");
    assert_eq!(raw.data(&path).unwrap(), b"somebody's");
}

fn a_job_takes_over_the_path_of_a_lock_that_nobody_uses(place: Place) {
    let client = place.connect(&place.shared().hosts());
    let paths = [(); 3].map(|()| fresh_path("taken-over"));
    drop(client.mutex(&paths[0]).unwrap().lock().unwrap());
    drop(client.semaphore(&paths[1], 2).unwrap().acquire().unwrap());
    // Another library makes such a node, which no server removes.
    Raw::connect(&place.shared().hosts()).create_all(&paths[2]);
    for path in &paths {
        let job = client.job(path).unwrap();
        eventually("nobody uses it", || {
            client.contenders(path).unwrap().is_empty()
        });
        run(&job);
        assert_eq!(job.last().unwrap().expect("a run").slot(), NIGHT);
    }
}

/// The number may be kazoo's `Counter`, a setting of a program, or an address that somebody keeps.
fn a_job_takes_over_no_number_that_may_be_anybodys(place: Place) {
    let hosts = place.shared().hosts();
    let (client, mut raw) = (place.connect(&hosts), Raw::connect(&hosts));
    for (data, writes) in [("41", 1), ("10", 0), ("10.0.0.5", 0)] {
        let path = fresh_path("kept");
        raw.create_all(&path);
        match writes {
            0 => {
                raw.delete(&path).unwrap();
                raw.create(&path, data.as_bytes(), PERSISTENT).unwrap();
            }
            _ => raw.set_data(&path, data.as_bytes()).unwrap(),
        }
        let job = client.job(&path).unwrap();
        let ended = job.once(NIGHT, |_| Ok::<_, Infallible>(()));
        assert!(matches!(ended, Err(Error::Unmarked { .. })), "{ended:?}");
        assert_eq!(raw.data(&path).as_deref(), Some(data.as_bytes()));
        assert_eq!(raw.children(&path), Some(vec![]));
    }
}

/// Servers remove the containers of locks, with their content.
#[test]
fn a_record_in_the_place_of_a_lock_stays() {
    let often = Duration::from_millis(50);
    let server = Server::builder().container_check(often).start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let (path, witness) = ("/night", "/witness");
    for lock in [path, witness] {
        client
            .mutex(lock)
            .unwrap()
            .lock()
            .unwrap()
            .unlock()
            .unwrap();
    }
    let job = client.job(path).unwrap();
    // Servers look at all containers in one go.
    run(&job);
    let mut raw = Raw::connect(server.hosts());
    eventually("the locks' are gone", || raw.stat(witness).is_none());
    client
        .mutex(witness)
        .unwrap()
        .lock()
        .unwrap()
        .unlock()
        .unwrap();
    eventually("and gone again", || raw.stat(witness).is_none());
    let last = job.last().unwrap().expect("a run");
    assert_eq!(last.slot(), NIGHT);
}

/// The creator of the node has chosen who may do what with it, and who may replace it.
fn a_path_that_is_taken_over_stays_as_open_as_it_was(place: Place) {
    let hosts = place.shared().hosts();
    let careful = Client::builder(&hosts).auth("digest", b"me:secret");
    let careful = careful.acl(Acl::creator_all()).connect().unwrap();
    let path = fresh_path("open");
    let (mut raw, client) = (Raw::connect(&hosts), place.connect(&hosts));
    client
        .mutex(&path)
        .unwrap()
        .lock()
        .unwrap()
        .unlock()
        .unwrap();
    run(&careful.job(&path).unwrap());
    assert_eq!(
        client
            .job(&path)
            .unwrap()
            .last()
            .unwrap()
            .expect("a run")
            .slot(),
        NIGHT
    );
    // Nobody may replace a node below this one.
    let guarded = format!("{path}-guarded/job");
    raw.create_all(&guarded);
    raw.forbid_creates(&format!("{path}-guarded")).unwrap();
    run(&client.job(&guarded).unwrap());
}

/// A slow client looks at an idle lock, and meanwhile another client has taken it over, and has written as often.
fn a_job_takes_over_no_job_that_was_faster(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("faster"));
    let lock = place.connect(&hosts).mutex(&path).unwrap();
    for _ in 0..2 {
        let guard = lock.lock().unwrap();
        guard.leave_note();
        guard.unlock_noting();
    }
    let mut raw = Raw::connect(&hosts);
    assert_eq!(raw.stat(&path).expect("a note").version, 2);
    let network = Proxy::start(&hosts);
    let job = place.connect(&network.hosts()).job(&path).unwrap();
    network.blackhole_at_next_request(op::CREATE);
    let slow = aside(move || job.once(NIGHT, |_| Ok::<_, Infallible>(())));
    eventually("it has looked", || network.fired());
    let faster = place.connect(&hosts).job(&path).unwrap();
    run(&faster);
    assert_eq!(raw.stat(&path).expect("a record").version, 2);
    network.heal();
    let ended = slow.recv_timeout(SOON).expect("an end");
    assert!(matches!(ended, Ok(Once::DoneBefore(_))), "{ended:?}");
}

/// A client looks at an idle lock, and before it looks closer another client has made a job of the lock.
fn a_job_that_another_one_has_taken_over_meanwhile_is_a_job(place: Place) {
    // These are the second look at the path's node, and the look at the directories of a semaphore.
    for (permits, look) in [(0, 1), (1, 1), (1, 2)] {
        let taken_over = (0..3).any(|_| is_taken_over_meanwhile(place, permits, look));
        assert!(taken_over, "{permits} {look}: the directories go each time");
    }
}

/// Returns `false` if the server was about to remove a semaphore, and had begun with its directories: the nodes
/// that are left may be anybody's.
fn is_taken_over_meanwhile(place: Place, permits: u32, look: usize) -> bool {
    let (hosts, path) = (place.shared().hosts(), fresh_path("meanwhile"));
    let client = place.connect(&hosts);
    leave_idle(&client, &path, permits);
    let network = Proxy::start(&hosts);
    let job = place.connect(&network.hosts()).job(&path).unwrap();
    network.delay(LAG);
    let slow = aside(move || once(&job));
    eventually("it looks", || network.requests(op::GET_DATA) >= look);
    network.blackhole_at_next_request(op::GET_DATA);
    eventually("it has looked", || network.fired());
    let faster = once(&client.job(&path).unwrap());
    network.delay(Duration::ZERO);
    network.heal();
    let ended = slow.recv_timeout(SOON).expect("an end");
    let left = Raw::connect(&hosts).children(&path).unwrap_or_default();
    if permits > 0 && matches!(faster, Err(Error::Unmarked { .. })) && left.len() < 2 {
        return false;
    }
    assert!(
        matches!(
            (&faster, &ended),
            (Ok(Once::Done(())), Ok(Once::DoneBefore(_)))
        ),
        "{permits} {look}: {faster:?}, {ended:?}"
    );
    true
}

fn leave_idle(client: &Client, path: &str, permits: u32) {
    match permits {
        0 => client.mutex(path).unwrap().lock().unwrap().unlock(),
        some => {
            let semaphore = client.semaphore(path, some).unwrap();
            semaphore.acquire().unwrap().unlock()
        }
    }
    .unwrap();
}

/// A client that dies, or is refused, on the way to its record leaves the path as it was.
fn a_place_that_may_not_be_replaced_stays_a_jobs_for_all_that_come(place: Place) {
    let (hosts, above) = (place.shared().hosts(), fresh_path("guarded"));
    let mut raw = Raw::connect(&hosts);
    let path = format!("{above}/job");
    raw.create_all(&path);
    raw.forbid_creates(&above).unwrap();
    let network = Proxy::start(&hosts);
    let client = place.connect(&network.hosts());
    network.blackhole_at_next_request(op::SET_DATA);
    let job = client.job(&path).unwrap();
    let slow = aside(move || job.once(NIGHT, |_| Ok::<_, Infallible>(())));
    eventually("it is about to write", || network.fired());
    run(&place.connect(&hosts).job(&path).unwrap());
    network.heal();
    let ended = slow.recv_timeout(SOON).expect("an end");
    assert!(matches!(ended, Ok(Once::DoneBefore(_))), "{ended:?}");
}

/// A note in the place of data that somebody has deleted would hide that the path was a job's.
fn a_lock_leaves_no_note_where_a_record_was(place: Place) {
    let (job, mut raw, path) = scene(place);
    raw.set_data(&path, b"").unwrap();
    let client = place.connect(&place.shared().hosts());
    let release = |guard: Box<dyn LockGuard>| {
        guard.leave_note();
        guard.unlock_noting();
        guard.unlock().unwrap();
    };
    release(Box::new(client.mutex(&path).unwrap().lock().unwrap()));
    release(Box::new(client.rwlock(&path).unwrap().read().unwrap()));
    assert_eq!(raw.data(&path).unwrap(), b"");
    let ended = job.once(NIGHT, |_| Ok::<_, Infallible>(()));
    assert!(matches!(ended, Err(Error::Unmarked { .. })), "{ended:?}");
}

fn a_job_takes_over_nothing_that_was_a_jobs_or_is_in_use(place: Place) {
    let (job, mut raw, path) = scene(place);
    // A semaphore of an older version wrote over the record, or somebody emptied the node.
    for text in [&b"2"[..], b""] {
        raw.set_data(&path, text).unwrap();
        let ended = job.once(NIGHT, |_| Ok::<_, Infallible>(()));
        assert!(matches!(ended, Err(Error::Unmarked { .. })), "{ended:?}");
    }
    let client = place.connect(&place.shared().hosts());
    let (used, parent) = (fresh_path("used"), fresh_path("parent"));
    let guard = client.mutex(&used).unwrap().lock().unwrap();
    drop(
        client
            .mutex(&format!("{parent}/child"))
            .unwrap()
            .lock()
            .unwrap(),
    );
    for path in [&used, &parent] {
        let ended = client
            .job(path)
            .unwrap()
            .once(NIGHT, |_| Ok::<_, Infallible>(()));
        assert!(matches!(ended, Err(Error::Unmarked { .. })), "{ended:?}");
    }
    guard.unlock().unwrap();
}
