//! What the end of a session tells first: the server may grant its locks to other clients at once.

use super::*;
use crate::transport::mute::Mute;

#[test]
fn the_guards_hear_of_the_end_of_a_session_before_the_server() {
    let close = |session: Session| assert!(session.close(CLOSE_LIMIT));
    let ends: [fn(Session); 2] = [close, drop];
    for end in ends {
        let status = Arc::new(Status::new(Duration::from_secs(10), true));
        status.connected(7);
        let told = Arc::<Mutex<Vec<bool>>>::default();
        let (guards, notes) = (status.clone(), told.clone());
        let mute = Mute {
            ends: Some(Box::new(move || {
                notes.lock().push(guards.snapshot().is_over())
            })),
            ..Mute::default()
        };
        let session = Session::new(status, Arc::new(mute), Settings::default());
        end(session.expect("a thread"));
        let told = told.lock();
        assert!(
            !told.is_empty() && told.iter().all(|told| *told),
            "{told:?}"
        );
    }
}
