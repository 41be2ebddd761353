//! A job's record is forgotten, or mended if something has replaced it, and nothing else is.

use std::convert::Infallible;
use std::time::Duration;

use zklock::{Client, Error, Job, Once};

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

fn run(job: &Job) {
    let ended = job.once(NIGHT, |_| Ok::<_, Infallible>(()));
    assert!(matches!(ended, Ok(Once::Done(()))), "{ended:?}");
}

/// Does this over a network on which the request of this kind that follows the reading of the record
/// arrives after somebody's write.
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
    // A deletion that is refused has the server catch up before that.
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
        // A semaphore leaves these for a while.
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
    // A contender's node.
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
    // As another library makes it, which no server removes.
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
