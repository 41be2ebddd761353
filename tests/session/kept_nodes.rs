//! Nodes that their own clients may not delete.

use zklock::{Client, ClientBuilder, Error, Once, Outcome, RunRecord};

use super::SOON;
use crate::support::fresh_path;
use crate::support::raw::{Raw, assert_nothing_left};
use crate::support::zookeeper::ZooKeeper;

fn somebody(hosts: &str) -> ClientBuilder {
    Client::builder(hosts).session_timeout(SOON)
}

/// The servers delete the node with the session.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn who_may_not_delete_its_own_node_is_told_so_by_the_release() {
    let hosts = ZooKeeper::shared().hosts();
    let path = fresh_path("kept");
    let mut raw = Raw::connect(&hosts);
    let client = somebody(&hosts).connect().unwrap();
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    raw.forbid_deletes(&path).unwrap();
    let told = guard.unlock().unwrap_err();
    assert_eq!(told, Error::NoAuth { path: path.clone() });
    client.close().unwrap();
    assert_nothing_left(&hosts, &path);
}

/// Once, the slot was run again by everybody who came: the record was lost with the deletion.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_run_is_recorded_though_its_node_may_not_be_deleted() {
    let hosts = ZooKeeper::shared().hosts();
    let (path, mut raw) = (fresh_path("kept-job"), Raw::connect(&hosts));
    let [client, next] = [(); 2].map(|()| somebody(&hosts).connect().unwrap());
    let [job, their] = [&client, &next].map(|client| client.job(&path).unwrap());
    let ran = job.once("a", |run| {
        raw.forbid_deletes(&path).map_err(|code| code.to_string())?;
        run.set_state("7").map_err(|error| error.to_string())
    });
    assert!(matches!(ran, Ok(Once::Done(()))), "{ran:?}");
    for job in [&job, &their] {
        let again = job.once("a", |_| Ok::<_, Error>(()));
        assert!(matches!(again, Ok(Once::DoneBefore(_))), "{again:?}");
        assert_eq!(job.state().unwrap().as_deref(), Some(&b"7"[..]));
    }
    // The node stands in the way of the next slot.
    let told = Error::NoAuth { path: path.clone() };
    let refused = job.once("b", |_| Ok::<_, Error>(())).unwrap_err();
    assert_eq!(refused, told);
    client.close().unwrap();
    let failed = their.once("b", |_| Err::<(), _>("no"));
    assert!(matches!(failed, Ok(Once::Failed("no"))), "{failed:?}");
    next.close().unwrap();
    let last = somebody(&hosts).connect().unwrap();
    let refused = last.job(&path).unwrap().once("b", |run| {
        let before = run.retry_of().map(RunRecord::outcome);
        assert_eq!(before, Some(Outcome::Failed));
        raw.allow_reads_only(&path).map_err(|code| code.to_string())
    });
    assert_eq!(refused.unwrap_err(), told, "it may not write either");
    last.close().unwrap();
    assert_nothing_left(&hosts, &path);
}
