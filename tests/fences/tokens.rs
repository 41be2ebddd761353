//! The tokens with which a token can be compared.

use zklock::Client;

use crate::support::fresh_path;
use crate::support::raw::Raw;
use crate::support::zookeeper::ZooKeeper;

fn token(hosts: &str, path: &str) -> i64 {
    let client = Client::connect(hosts).expect("a client");
    let guard = client.mutex(path).expect("a mutex").lock().expect("a lock");
    let token = guard.fencing_token().get();
    guard.unlock().expect("it is held");
    token
}

#[test]
#[ignore = "needs a real ZooKeeper"]
fn tokens_grow_on_when_the_directory_is_made_anew() {
    let (hosts, path) = (ZooKeeper::shared().hosts(), fresh_path("anew"));
    let before = token(&hosts, &path);
    Raw::connect(&hosts)
        .delete(&path)
        .expect("an empty directory");
    assert!(before < token(&hosts, &path));
}

#[test]
#[ignore = "needs a real ZooKeeper"]
fn tokens_go_back_with_the_ensemble() {
    let (server, path) = (ZooKeeper::builder().start(), fresh_path("restored"));
    let hosts = server.hosts();
    let before = (0..20).map(|_| token(&hosts, &path)).max();
    server.restart_empty();
    assert!(Some(token(&hosts, &path)) < before);
}
