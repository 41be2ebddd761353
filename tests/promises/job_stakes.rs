//! The stake of a client that replaces a job's node: it keeps others from the job meanwhile, and not for longer.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use zklock::{Error, Job, JobOptions, Once};

use crate::support::proxy::Proxy;
use crate::support::raw::{EPHEMERAL, Raw, op};
use crate::support::{aside, eventually, fresh_path};
use crate::transport::{Place, SOON, on_every_server};

on_every_server! {
    who_dies_on_the_way_to_a_record_leaves_a_path_that_is_taken
    a_repair_mends_no_job_that_was_mended_faster
}

/// The name of the node below a path while a client makes a job of it.
const STAKE: &str = "taken-over-by-a-job";

fn run(job: &Job, slot: &str, options: JobOptions<'_>) -> Result<Once<(), Infallible>, Error> {
    job.once_with(slot, options, |_| Ok::<_, Infallible>(()))
}

fn is_done(ended: Result<Once<(), Infallible>, Error>) {
    assert!(matches!(ended, Ok(Once::Done(()))), "{ended:?}");
}

/// The owner of the stake is dead, and its session lasts.
fn who_dies_on_the_way_to_a_record_leaves_a_path_that_is_taken(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("staked"));
    let client = place.connect(&hosts);
    drop(client.mutex(&path).unwrap().lock().unwrap());
    let (mut dead, stake) = (Raw::connect(&hosts), format!("{path}/{STAKE}"));
    dead.create(&stake, b"", EPHEMERAL).unwrap();
    let (job, begun) = (client.job(&path).unwrap(), Instant::now());
    let tried = run(&job, "a", JobOptions::new().wait(false));
    assert!(matches!(tried, Err(Error::GaveUp { .. })), "{tried:?}");
    assert!(begun.elapsed() < SOON);
    let soon = JobOptions::new().deadline(Instant::now() + Duration::from_secs(3));
    let waited = run(&job, "a", soon);
    assert!(matches!(waited, Err(Error::GaveUp { .. })), "{waited:?}");
    let waits = aside(move || run(&job, "a", JobOptions::new()));
    dead.delete(&stake).unwrap();
    is_done(waits.recv_timeout(SOON).expect("an end"));
}

/// A slow client reads a record that cannot be read, and meanwhile another client mends it and writes as often.
fn a_repair_mends_no_job_that_was_mended_faster(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("mended"));
    let faster = place.connect(&hosts).job(&path).unwrap();
    is_done(run(&faster, "a", JobOptions::new()));
    let mut raw = Raw::connect(&hosts);
    for _ in 0..2 {
        raw.set_data(&path, b"2").unwrap();
    }
    let version = raw.stat(&path).expect("a record").version;
    let network = Proxy::start(&hosts);
    let job = place.connect(&network.hosts()).job(&path).unwrap();
    network.blackhole_at_next_request(op::CREATE);
    let slow = aside(move || job.repair());
    eventually("it has looked", || network.fired());
    faster.repair().unwrap();
    for slot in ["b", "c"] {
        is_done(run(&faster, slot, JobOptions::new()));
    }
    assert_eq!(raw.stat(&path).expect("a record").version, version);
    network.heal();
    let ended = slow.recv_timeout(SOON).expect("an end");
    assert!(ended.is_ok(), "{ended:?}");
    let last = faster.last().unwrap().expect("a run");
    assert_eq!(last.slot(), "c");
}
