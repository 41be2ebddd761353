//! Clients that log in with SASL.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use zklock::{Acl, Client, ClientBuilder, Error, GuardState, Sasl, SessionEvent};

use super::SOON;
use crate::support::ensemble::Ensemble;
use crate::support::jaas::Jaas;
use crate::support::proxy::Proxy;
use crate::support::raw::op;
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path, timed};

/// The users and their passwords: one is ASCII, one can be written in ISO 8859-1, and one cannot.
const USERS: [(&str, &str); 3] = [
    ("ann", "correct horse battery staple"),
    ("bob", "gr\u{fc}n, gr\u{fc}n, gr\u{fc}n"),
    (
        "eve",
        "\u{43f}\u{430}\u{440}\u{43e}\u{43b}\u{44c} \u{1f512}",
    ),
];

/// Returns a server that admits nobody without a login; leave it running.
fn strict() -> &'static ZooKeeper {
    static STRICT: OnceLock<(Jaas, ZooKeeper)> = OnceLock::new();
    let start = || {
        let users = Jaas::new(&USERS);
        let server = users.strict().start();
        (users, server)
    };
    &STRICT.get_or_init(start).1
}

fn login(hosts: &str, user: &str, password: &str) -> ClientBuilder {
    Client::builder(hosts)
        .session_timeout(SOON)
        .sasl(Sasl::digest(user, password))
}

/// Returns a builder for one of the users.
fn user(hosts: &str, name: &str) -> ClientBuilder {
    let known = USERS.iter().find(|(user, _)| *user == name);
    login(hosts, name, known.expect("a user").1).acl(Acl::sasl(name))
}

fn show(value: &impl Debug) -> String {
    format!("{value:?} {value:#?}")
}

/// A check needs READ, so that no answer would ever confirm the lock.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn who_may_not_read_its_own_node_is_told_so_when_it_asks() {
    let (hosts, path) = (strict().hosts(), fresh_path("hidden"));
    let open = user(&hosts, "ann").acl(Acl::open()).connect().unwrap();
    open.rwlock(&path)
        .unwrap()
        .write()
        .unwrap()
        .unlock()
        .unwrap();
    let blind = user(&hosts, "bob").acl(Acl::sasl("ann")).connect().unwrap();
    let lock = blind.rwlock(&path).unwrap();
    let named = |told: Error| match told {
        Error::NoAuth { path: named } => assert!(named.starts_with(&path), "{named}"),
        told => panic!("{told}"),
    };
    // Its create is a proof.
    let guard = lock.write().unwrap();
    named(guard.verify().unwrap_err());
    guard.check().unwrap();
    named(guard.downgrade().unwrap_err());
    let (first, second) = (format!("{path}/1"), format!("{path}/2"));
    let holder = open.mutex(&first).unwrap().lock().unwrap();
    open.mutex(&second)
        .unwrap()
        .lock()
        .unwrap()
        .unlock()
        .unwrap();
    let both = blind.multi_lock([&*first, &*second]).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| both.try_lock_for(4 * SOON).map(drop));
        // ZooKeeper shows it at once since 3.8.4, and before that when its turn comes.
        let waits = || open.contenders(&first).unwrap().len() == 2;
        eventually("it waits", || waiting.is_finished() || waits());
        // Its creates are no proof any more.
        thread::sleep(SOON / 4);
        holder.unlock().unwrap();
        named(waiting.join().unwrap().unwrap_err());
    });
    for lock in [&path, &first, &second] {
        let is_free = || open.contenders(lock).unwrap().is_empty();
        eventually("nothing is left", is_free);
    }
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_users_locks_are_the_users_own() {
    let hosts = strict().hosts();
    for acl in [Acl::sasl("ann"), Acl::creator_all()] {
        let path = fresh_path("logged-in");
        let ann = user(&hosts, "ann").acl(acl.clone()).connect().unwrap();
        let guard = ann.mutex(&path).unwrap().lock().unwrap();
        for stranger in ["bob", "eve"] {
            let stranger = user(&hosts, stranger).connect().unwrap();
            let refused = stranger.mutex(&path).unwrap().try_lock();
            assert_eq!(refused.unwrap_err(), Error::NoAuth { path: path.clone() });
        }
        let again = user(&hosts, "ann").acl(acl).connect().unwrap();
        thread::scope(|scope| {
            let mutex = again.mutex(&path).unwrap();
            let waiting = scope.spawn(move || mutex.lock().unwrap().unlock());
            eventually("it waits", || again.contenders(&path).unwrap().len() == 2);
            guard.verify().unwrap();
            guard.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
        assert!(ann.contenders(&path).unwrap().is_empty());
    }
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_login_that_is_refused_is_told_at_once_with_user_and_server() {
    let users = Jaas::new(&USERS);
    let lenient = users.builder().start();
    let schemes = users
        .builder()
        .property("zookeeper.enforce.auth.enabled", "true")
        .property("zookeeper.enforce.auth.schemes", "sasl")
        .start();
    let refusal = "the server lets in only clients that have logged in, by SASL (-124)";
    for (server, said) in [
        (strict(), refusal),
        (&schemes, refusal),
        (&lenient, "authentication failed (-115)"),
    ] {
        let hosts = server.hosts();
        for (user, password) in [("ann", "a wrong password"), ("nobody", "a wrong password")] {
            let builder = login(&hosts, user, password);
            let (connected, took) = timed(|| builder.clone().connect());
            let error = connected.unwrap_err();
            assert!(took < Duration::from_secs(5), "{took:?}");
            let Error::SaslRefused {
                principal,
                server,
                reason,
            } = &error
            else {
                panic!("{error}");
            };
            assert_eq!((principal.as_str(), server), (user, &hosts));
            // Before 3.8 servers send a number and no more.
            assert!(
                [said, "authentication failed (-115)"].contains(&&**reason),
                "{reason}"
            );
            assert!(error.is_closed());
            let message = format!(
                "the server {hosts} refused the SASL login of {user}: {reason}; check the user and the password"
            );
            assert_eq!(error.to_string(), message);
            assert!(!show(&(error, builder)).contains(password));
        }
        // The right password is admitted.
        user(&hosts, "ann").connect().unwrap().close().unwrap();
    }
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_client_without_a_login_is_told_what_is_missing() {
    let connected = Client::builder(&strict().hosts()).connect();
    // The client sends one request only: the servers discard their answer if there are more to
    // read.
    let refused = connected.and_then(|client| client.nodes().exists("/a"));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("add a login by SASL (-124)"), "{refused}");
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_server_without_sasl_is_passed_over() {
    let plain = ZooKeeper::shared().hosts();
    let second = Duration::from_secs(1);
    let refused = user(&plain, "ann").connect_timeout(second).connect();
    let refused = refused.unwrap_err();
    let Error::ConnectTimeout { tried, .. } = &refused else {
        panic!("{refused}");
    };
    let expected = format!("{plain}: it has no SASL login: it is not configured for one");
    assert_eq!(*tried, [expected]);
    let advice = "): configure the servers for a login by SASL, or connect without one";
    assert!(refused.to_string().ends_with(advice), "{refused}");
}

/// A login takes two round trips after the greeting, each within the time of a greeting, but not all within one.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_server_that_is_far_away_lets_a_client_in_at_once() {
    let proxy = Proxy::start(&strict().hosts());
    proxy.delay(Duration::from_millis(260));
    let logs_in = login(&proxy.hosts(), "ann", USERS[0].1);
    let client = logs_in.session_timeout(2 * SOON).connect().unwrap();
    assert_eq!((proxy.connections(), proxy.greetings()), (1, 1));
    client.close().unwrap();
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_login_that_is_cut_short_is_made_again_and_the_lock_stays() {
    let proxy = Proxy::start(&strict().hosts());
    let client = user(&proxy.hosts(), "ann")
        .auth("digest", "ann:another password")
        .connect()
        .unwrap();
    let (session, path) = (client.session_id(), fresh_path("cut-short"));
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    // The waiter's watch must be set again, but not before it has logged in.
    let waiter = user(&proxy.hosts(), "ann").connect().unwrap();
    let ups = || [&client, &waiter].map(|client| client.metrics().reconnects);
    thread::scope(|scope| {
        let mutex = waiter.mutex(&path).unwrap();
        let waiting = scope.spawn(move || mutex.lock().unwrap().unlock());
        eventually("it waits", || client.contenders(&path).unwrap().len() == 2);
        for break_it in [Proxy::drop_next_reply_to, Proxy::drop_next_request] {
            let (logins, [before, other]) = (proxy.requests(op::SASL), ups());
            break_it(&proxy, op::SASL);
            proxy.cut();
            eventually("both are back", || before < ups()[0] && other < ups()[1]);
            eventually("the lock is confirmed", || {
                guard.state() == GuardState::Held
            });
            assert!(proxy.fired());
            // One login was lost, and each client made two.
            assert!(5 <= proxy.requests(op::SASL) - logins);
        }
        assert!(0 < proxy.requests(op::SET_WATCHES));
        guard.verify().unwrap();
        assert_eq!(client.session_id(), session);
        guard.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

/// Each connect request extends the session, and comes before the login.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn the_locks_of_a_client_that_no_server_lets_in_any_more_become_free() {
    let proxy = Proxy::start(&strict().hosts());
    let timeout = Duration::from_secs(2);
    let client = user(&proxy.hosts(), "ann").acl(Acl::open());
    let client = client.session_timeout(timeout).connect().unwrap();
    let path = fresh_path("locked-out");
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    let next = user(&strict().hosts(), "bob").acl(Acl::open());
    let next = next.connect().unwrap();
    let next = next.mutex(&path).unwrap();
    let (events, logins) = (client.events(), proxy.requests(op::SASL));
    proxy.hang_up_at(op::SASL);
    proxy.cut();
    let granted = next.try_lock_for(5 * timeout).unwrap();
    assert!(granted.is_some(), "it is taken");
    assert!(guard.check().unwrap_err().is_lost());
    assert!(logins + 2 < proxy.requests(op::SASL), "it tries on");
    let expected = [SessionEvent::Disconnected, SessionEvent::Expired];
    assert_eq!(events.try_iter().collect::<Vec<_>>(), expected);
    proxy.hang_up_at(op::RECONFIG);
    let other = client.mutex(&fresh_path("let-in")).unwrap();
    drop(other.try_lock_for(SOON).unwrap().expect("it is let in"));
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_session_and_its_lock_move_to_a_server_that_answers_the_login() {
    let users = Jaas::new(&USERS);
    // The sessions are long: two logins that take all their time must not cost the lock.
    let ensemble = Ensemble::start_with(&users.strict().tick(Duration::from_secs(2)));
    let proxies = [0, 1, 2].map(|i| Proxy::start(&ensemble.server(i).hosts()));
    let [first, second, third] = &proxies;
    second.refuse();
    third.refuse();
    let hosts = proxies.each_ref().map(Proxy::hosts).join(",");
    let client = user(&hosts, "eve")
        .session_timeout(3 * SOON)
        .connect()
        .unwrap();
    let (session, path) = (client.session_id(), fresh_path("moved"));
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    let connects = |proxy: &Proxy| proxy.requests(op::SASL);
    // A busy machine may take too long for the first login.
    assert!(2 <= connects(first));

    // The second server never answers the login, so the third one is asked.
    second.blackhole_at_next_request(op::SASL);
    second.accept();
    first.refuse();
    eventually("the second is asked", || second.fired());
    third.accept();
    // This is as long as the client waits for an answer, and not much longer.
    thread::sleep(Duration::from_millis(5200));
    second.refuse();
    second.heal();
    eventually("the third is asked", || connects(third) == 2);
    eventually("the lock is confirmed", || guard.verify().is_ok());
    assert_eq!(client.session_id(), session);

    // The client moves back again.
    first.accept();
    third.refuse();
    eventually("the first is asked", || connects(first) == 4);
    eventually("the lock is confirmed", || guard.verify().is_ok());
    assert_eq!(client.session_id(), session);
    guard.unlock().unwrap();
    client.close().unwrap();
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_password_that_changes_while_a_lock_is_held_ends_the_client() {
    let users = Jaas::new(&USERS);
    let server = users.strict().start();
    let proxy = Proxy::start(&server.hosts());
    let client = user(&proxy.hosts(), "ann").connect().unwrap();
    let guard = client
        .mutex(&fresh_path("changed"))
        .unwrap()
        .lock()
        .unwrap();
    users.change(&[("ann", "another password")]);
    server.restart();
    // A server that takes long to restart ends the lock before it refuses the client.
    let other = client.mutex("/a").unwrap();
    eventually("the client has ended", || {
        matches!(other.try_lock(), Err(Error::SaslRefused { .. }))
    });
    let error = guard.unlock().unwrap_err();
    assert!(error.is_lost(), "{error}");
}

#[cfg(feature = "tls")]
#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_login_works_over_tls() {
    use crate::support::secure::{Keys, server_of};

    let (keys, users) = (Keys::new(), Jaas::new(&USERS));
    let (chain, key) = keys.sign("client", &[]);
    let (_zk, hosts) = server_of(users.strict(), &keys, &["127.0.0.1"]);
    let tls = zklock::Tls::new()
        .ca_file(keys.ca())
        .client_cert(chain, key);
    let client = user(&hosts, "bob").tls(tls.clone()).connect().unwrap();
    let guard = client.mutex(&fresh_path("both")).unwrap().lock().unwrap();
    guard.verify().unwrap();
    let refused = login(&hosts, "bob", "wrong").tls(tls).connect();
    assert!(matches!(refused, Err(Error::SaslRefused { .. })));
}

#[test]
fn a_login_without_a_user_or_a_password_is_refused_here() {
    for (user, password) in [("", "x"), ("x", "")] {
        let error = login("127.0.0.1:1", user, password).connect().unwrap_err();
        assert!(error.is_bad_input(), "{error}");
    }
}

#[test]
fn a_password_for_a_login_is_not_sent_as_other_credentials_are() {
    for scheme in ["sasl", "SASL", " sasl"] {
        let builder = Client::builder("127.0.0.1:1").auth(scheme, "ann:secret");
        let error = builder.connect().unwrap_err();
        assert!(error.is_bad_input(), "{error}");
        assert!(error.to_string().contains("use the login"), "{error}");
    }
}
