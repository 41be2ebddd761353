//! The reads of a client about others are not older than what those others were told before the
//! client asked.

use std::convert::Infallible;

use zklock::embedded::Server;
use zklock::{Client, Job, Once};

use crate::support::fresh_path;

const SLOT: &str = "2026-11-26";

/// Two clients of one server, which shows one of them nothing new until that one asks it to catch
/// up.
struct Scene {
    server: Server,
    early: Client,
    late: Client,
    hidden: Vec<zklock::SendMutexGuard>,
}

impl Scene {
    fn new() -> Self {
        let server = Server::start().unwrap();
        let [early, late] = [(); 2].map(|()| Client::connect(server.hosts()).unwrap());
        Self {
            server,
            early,
            late,
            hidden: Vec::new(),
        }
    }

    /// Makes the server lag from now on, for all but the first client.
    fn lag(&mut self) {
        self.server.hide_next_create();
        let mutex = self.early.mutex(&fresh_path("hidden")).unwrap();
        self.hidden.push(mutex.lock().unwrap().into_send());
    }

    fn run(&self, path: &str, within: impl FnOnce()) {
        let job = self.early.job(path).unwrap();
        let ended = job.once(SLOT, |run| {
            run.set_state(b"state").unwrap();
            within();
            Ok::<_, Infallible>(())
        });
        assert!(matches!(ended, Ok(Once::Done(()))), "{ended:?}");
    }
}

#[test]
fn who_was_told_that_a_lock_is_theirs_or_released_is_listed_so() {
    let (mut scene, path) = (Scene::new(), fresh_path("listed"));
    scene.lag();
    let guard = scene.early.mutex(&path).unwrap().lock().unwrap();
    let listed = scene.late.contenders(&path).unwrap();
    assert_eq!(listed.len(), 1);
    assert!(listed[0].holds());
    scene.lag();
    guard.unlock().unwrap();
    assert!(scene.late.contenders(&path).unwrap().is_empty());
    scene.lag();
    let early = scene.early.mutex(&path).unwrap();
    let _leads = early.lock().unwrap();
    let standby = scene.late.standby(&path).unwrap();
    assert!(standby.leader().unwrap().is_some());
}

#[test]
fn who_was_told_that_a_job_has_run_is_believed_by_all_who_ask() {
    let mut scene = Scene::new();
    let asks: [fn(&Job); 3] = [
        |job| assert!(job.last().unwrap().is_some(), "no last run"),
        |job| assert_eq!(job.history().unwrap().len(), 1),
        |job| assert_eq!(job.state().unwrap().as_deref(), Some(&b"state"[..])),
    ];
    for ask in asks {
        let path = fresh_path("asked");
        scene.lag();
        scene.run(&path, || {});
        ask(&scene.late.job(&path).unwrap());
    }
    let path = fresh_path("asked");
    let job = scene.late.job(&path).unwrap();
    scene.lag();
    scene.run(&path, || {
        let running = job.running().unwrap().expect("a run that is under way");
        assert!(running.to_string().ends_with("under way"), "{running}");
    });
}
