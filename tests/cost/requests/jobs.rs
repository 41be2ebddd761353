//! The costs of a run of a job.

use std::process::Command;
use std::time::Duration;

use zklock::{Client, Once};

use super::scene::{ENTER, Scene};
use super::tap::Tap;
use crate::support::program;
use crate::support::raw::op;

#[test]
fn a_run_of_a_job_begins_as_soon_as_it_is_written_down_and_not_read_again() {
    let scene = Scene::new("run");
    let path = format!("{}/job", scene.path);
    let run = |client: &Client, slot: &str| {
        let done = client
            .job(&path)
            .unwrap()
            .once(slot, |_| Ok::<_, String>(()));
        assert!(matches!(done, Ok(Once::Done(()))), "{done:?}");
    };
    // The directories exist.
    run(&scene.connect(), "1");
    scene.tap.take();
    run(&scene.client, "2");
    let looked = [vec![op::GET_DATA], [&ENTER[..], &[op::GET_DATA]].concat()];
    let begun_and_ended = [vec![op::MULTI], vec![op::MULTI]];
    assert_eq!(scene.tap.take(), [&looked[..], &begun_and_ended].concat());
}

#[test]
fn a_run_that_goes_by_the_time_costs_one_write_more() {
    let scene = Scene::new("every");
    let path = format!("{}/job", scene.path);
    let run = |client: &Client| {
        let job = client.job(&path).unwrap();
        let done = job.at_most_every(Duration::ZERO, |_| Ok::<_, String>(()));
        assert!(matches!(done, Ok(Once::Done(()))), "{done:?}");
    };
    // The directories exist.
    run(&scene.connect());
    scene.tap.take();
    run(&scene.client);
    let looked = [vec![op::GET_DATA], [&ENTER[..], &[op::GET_DATA]].concat()];
    let written = [vec![op::MULTI], vec![op::MULTI], vec![op::MULTI]];
    assert_eq!(scene.tap.take(), [&looked[..], &written].concat());
}

#[test]
fn the_program_reads_a_record_once_to_tell_what_was_last_run() {
    let scene = Scene::new("told");
    let path = format!("{}/job", scene.path);
    let done = scene
        .connect()
        .job(&path)
        .unwrap()
        .once("1", |_| Ok::<_, String>(()));
    assert!(matches!(done, Ok(Once::Done(()))), "{done:?}");
    let tap = Tap::start(scene.server.hosts());
    let mut zklock = Command::new(program());
    zklock.args(["--hosts", &tap.hosts, "last", "-n", "5", &path]);
    assert!(zklock.status().unwrap().success());
    let sent = tap.take();
    // The client asks a server that has caught up for the record, and for the contenders.
    let record = sent
        .iter()
        .filter(|write| **write == [op::SET_DATA, op::GET_DATA]);
    assert_eq!((record.count(), sent.len()), (1, 3), "{sent:?}");
}
