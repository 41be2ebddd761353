//! The state that a run leaves for the next one, which is written with the mark of the run, or not
//! at all.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};

use zklock::{Client, Error, Job, Once, Run};

use crate::support::fresh_path;
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, op};
use crate::transport::{Place, on_every_server};

on_every_server! {
    a_run_gets_what_the_last_one_that_was_done_has_left
    a_run_that_is_not_done_leaves_what_it_got
    what_is_too_big_is_refused_and_changes_nothing
    any_bytes_can_be_left
    a_cursor_moves_with_its_mark_though_answers_are_lost
    a_client_that_cannot_keep_what_was_left_refuses_the_job
}

/// The most bytes that a run may leave.
const MOST: usize = 8192;

fn scene(place: Place) -> (Client, Job, String) {
    let (client, path) = (place.connect(&place.shared().hosts()), fresh_path("state"));
    let job = client.job(&path).unwrap();
    (client, job, path)
}

/// Runs the job; returns what the run got.
fn leave(job: &Job, slot: &str, state: Option<&[u8]>) -> Option<Vec<u8>> {
    let ran = job.once(slot, |run| {
        if let Some(state) = state {
            run.set_state(state)?;
        }
        Ok::<_, Error>(run.state().map(<[u8]>::to_vec))
    });
    match ran.unwrap() {
        Once::Done(got) => got,
        other => panic!("{other:?}"),
    }
}

/// Counts the runs: the run leaves one more than it got.
fn count(run: &Run<'_>) -> zklock::Result<u64> {
    let last = run.state().map_or(0, number);
    run.set_state((last + 1).to_string())?;
    Ok(last + 1)
}

fn number(state: &[u8]) -> u64 {
    std::str::from_utf8(state).unwrap().parse().unwrap()
}

fn a_run_gets_what_the_last_one_that_was_done_has_left(place: Place) {
    let (_, job, path) = scene(place);
    assert_eq!(job.state().unwrap(), None);
    assert_eq!(leave(&job, "1", None), None);
    assert_eq!(job.state().unwrap(), None);
    assert_eq!(leave(&job, "2", Some(b"two")), None);
    let other = place.connect(&place.shared().hosts()).job(&path).unwrap();
    assert_eq!(other.state().unwrap().as_deref(), Some(&b"two"[..]));
    // A run that leaves nothing leaves the state that it got; an empty text counts as a state.
    assert_eq!(leave(&other, "3", None).as_deref(), Some(&b"two"[..]));
    assert_eq!(leave(&job, "4", Some(b"")).as_deref(), Some(&b"two"[..]));
    assert_eq!(leave(&job, "5", None).as_deref(), Some(&b""[..]));
    let every = other.at_most_every(std::time::Duration::ZERO, count_from_nothing);
    assert!(matches!(every, Ok(Once::Done(()))), "{every:?}");
    assert_eq!(job.state().unwrap().as_deref(), Some(&b"1"[..]));
    assert!(job.forget().unwrap().is_some());
    assert_eq!(job.state().unwrap(), None);
}

fn count_from_nothing(run: &Run<'_>) -> zklock::Result<()> {
    assert_eq!(run.state(), Some(&b""[..]));
    run.set_state("0")?;
    // The last call counts.
    run.set_state("1")
}

fn a_run_that_is_not_done_leaves_what_it_got(place: Place) {
    let (client, job, path) = scene(place);
    leave(&job, "1", Some(b"one"));
    let failed = job.once("2", |run| {
        run.set_state("two").unwrap();
        Err::<(), _>("no disk")
    });
    assert!(matches!(failed, Ok(Once::Failed(_))), "{failed:?}");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        job.once("2", |run| -> Result<(), Infallible> {
            run.set_state("two").unwrap();
            panic!("half way through the import")
        })
    }));
    assert!(panicked.is_err());
    let lost = job.once("2", |run| {
        run.set_state("two").unwrap();
        client.contenders(&path).unwrap()[0].evict()
    });
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    assert_eq!(leave(&job, "2", None).as_deref(), Some(&b"one"[..]));
}

fn what_is_too_big_is_refused_and_changes_nothing(place: Place) {
    let (_, job, _) = scene(place);
    leave(&job, "1", Some(&[7; MOST]));
    let ran = job.once("2", |run| {
        assert_eq!(run.state(), Some(&[7; MOST][..]));
        run.set_state("two").unwrap();
        for size in [MOST + 1, 2 << 20] {
            let refused = run.set_state(vec![0; size]);
            let is_told = matches!(refused, Err(Error::BadArgument { name: "state", .. }));
            assert!(is_told, "{refused:?}");
        }
        Ok::<_, Infallible>(())
    });
    assert!(matches!(ran, Ok(Once::Done(()))), "{ran:?}");
    assert_eq!(job.state().unwrap().as_deref(), Some(&b"two"[..]));
}

fn any_bytes_can_be_left(place: Place) {
    let (_, job, _) = scene(place);
    let all: Vec<u8> = (0..=255).cycle().take(MOST).collect();
    let texts = [
        &all[..],
        b"\"quoted\"\n",
        b"\0",
        "\u{fc}\u{1}".as_bytes(),
        b"null",
        &[255; MOST],
    ];
    for (slot, state) in texts.iter().enumerate() {
        leave(&job, &slot.to_string(), Some(state));
        assert_eq!(job.state().unwrap().as_deref(), Some(*state));
    }
}

/// The connection breaks after the end of each second run was carried out, and before the answer.
fn a_cursor_moves_with_its_mark_though_answers_are_lost(place: Place) {
    let hosts = place.shared().hosts();
    let network = Proxy::start(&hosts);
    let job = place
        .connect(&network.hosts())
        .job(&fresh_path("state"))
        .unwrap();
    for slot in 1..=40_u64 {
        let ran = job.once(&format!("{slot:03}"), |run| {
            if slot % 2 == 0 {
                // The requests for the proof of the lock must not take the reply's place.
                run.verify()?;
                network.drop_next_reply_to(op::MULTI);
            }
            count(run)
        });
        assert!(
            matches!(ran, Ok(Once::Done(left)) if left == slot),
            "{ran:?}"
        );
        assert_eq!(job.state().unwrap().as_deref().map(number), Some(slot));
    }
}

/// A client of an older version would write the record without the fields that it does not know. It
/// takes a record of another format for somebody else's data.
fn a_client_that_cannot_keep_what_was_left_refuses_the_job(place: Place) {
    let (_, job, path) = scene(place);
    let mut raw = Raw::connect(&place.shared().hosts());
    let begins = |raw: &mut Raw, with: &str| {
        let data = String::from_utf8(raw.data(&path).unwrap()).unwrap();
        let record: serde_json::Value = serde_json::from_str(&data).unwrap();
        assert_eq!(record["job"].to_string(), with, "{data}");
    };
    leave(&job, "1", None);
    begins(&mut raw, "1");
    leave(&job, "2", Some(b"two"));
    begins(&mut raw, "2");
    leave(&job, "3", None);
    begins(&mut raw, "2");
    job.forget().unwrap();
    leave(&job, "1", None);
    begins(&mut raw, "1");
    let later = br#"{"job":3}"#;
    raw.set_data(&path, later).unwrap();
    let refused = job.once("2", |_run| Ok::<_, Error>(())).unwrap_err();
    assert!(refused.to_string().contains("a later version"), "{refused}");
    assert!(job.repair().is_err() && job.forget().is_err());
    assert_eq!(raw.data(&path).unwrap(), later);
}
