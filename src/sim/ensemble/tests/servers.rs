//! Servers that come, go, and lose each other.

use super::lab::{Lab, check, config, create, ms};
use crate::sim::ensemble::{EnsembleConfig, Fault, SessionEnd, What};
use zklock_jute::{CreateMode, ErrorCode, Request};

const LONG: std::time::Duration = ms(2000);

#[test]
fn a_follower_cut_off_answers_pings_and_reads_and_then_ends_its_connections() {
    let mut lab = Lab::new(config(), 1);
    let (leader, followers) = lab.roles();
    let server = followers[0];
    let client = lab.client(server, ms(300));
    lab.create(client.connection, "/mine", CreateMode::Ephemeral);
    lab.fault(Fault::Cut { server });
    let cut = lab.now;
    let mut pings = 0;
    while !lab.is_closed(client.connection) {
        if lab.code(client.connection, &Request::Ping) == ErrorCode::OK {
            pings += 1;
            assert_eq!(
                lab.code(client.connection, &Request::exists("/mine")),
                ErrorCode::OK
            );
        }
        lab.run_for(ms(20));
    }
    // Five ticks after it has last heard of the leader, which pings every half tick.
    let patience = lab.now - cut;
    assert!(ms(440) < patience && patience < ms(540), "{patience:?}");
    assert!(20 < pings, "{pings}");
    // The leader has ended the session long before.
    let ended = What::SessionEnded {
        session: client.session(),
        why: SessionEnd::Expired,
    };
    let history = lab.ensemble.history();
    let change = history.iter().find(|change| change.what == ended).unwrap();
    assert!(change.at - cut < ms(450), "{:?}", change.at - cut);
    // It accepts connections, and serves none, until it is back.
    let stranger = lab.dial(server);
    lab.send(stranger, &[0, 0, 0, 45]);
    assert!(lab.is_closed(stranger));
    assert_eq!(lab.ensemble.leader(), Some(leader));
    lab.fault(Fault::Heal { server });
    lab.run_for(ms(2500));
    let client = lab.client(server, LONG);
    let seen = lab.code(client.connection, &Request::exists("/mine"));
    assert_eq!(seen, ErrorCode::NO_NODE);
}

#[test]
fn what_was_sent_over_a_short_cut_arrives() {
    let mut lab = Lab::new(config(), 2);
    let (_, followers) = lab.roles();
    let server = followers[0];
    let client = lab.client(server, LONG);
    lab.fault(Fault::Cut { server });
    lab.ask(client.connection, &create("/a", CreateMode::Persistent));
    lab.run_for(ms(200));
    assert_eq!(lab.heard(client.connection).len(), 1);
    lab.fault(Fault::Heal { server });
    lab.run_for(ms(20));
    assert_eq!(lab.heard(client.connection).len(), 2);
    assert_eq!(lab.ensemble.nodes(), ["/a"]);
}

#[test]
fn a_leader_cut_off_commits_nothing_and_resigns() {
    let mut lab = Lab::new(config(), 3);
    let (leader, others) = lab.roles();
    let client = lab.client(leader, LONG);
    lab.fault(Fault::Cut { server: leader });
    lab.ask(client.connection, &create("/a", CreateMode::Persistent));
    lab.run_for(ms(300));
    assert!(!lab.is_closed(client.connection));
    lab.run_for(ms(400));
    assert!(lab.is_closed(client.connection));
    lab.until("another leads", |lab| lab.ensemble.leader().is_some());
    assert!(others.contains(&lab.ensemble.leader().unwrap()));
    let again = lab.meet(others[0], &client.again());
    let connection = match again {
        Some(again) => again.connection,
        // It may not have followed yet.
        None => {
            lab.run_for(ms(2000));
            lab.meet(others[0], &client.again()).unwrap().connection
        }
    };
    lab.create(connection, "/b", CreateMode::Persistent);
    lab.fault(Fault::Heal { server: leader });
    lab.run_for(ms(3000));
    assert_eq!(lab.ensemble.nodes(), ["/b"]);
    let back = lab.client(leader, LONG);
    assert_eq!(lab.list(back.connection, "/"), ["b", "zookeeper"]);
}

#[test]
fn what_an_old_leader_logged_alone_loses_to_a_newer_epoch() {
    for seed in 0..10 {
        let mut lab = Lab::new(config(), seed);
        let (leader, others) = lab.roles();
        let client = lab.client(leader, LONG);
        lab.run_for(ms(10));
        lab.fault(Fault::Cut { server: leader });
        lab.ask(client.connection, &create("/a", CreateMode::Persistent));
        lab.until("another leads", |lab| lab.ensemble.leader().is_some());
        // It changes nothing before it crashes, so no log goes further than the old leader's.
        let next = lab.ensemble.leader().unwrap();
        lab.fault(Fault::Crash { server: next });
        lab.fault(Fault::Heal { server: leader });
        lab.until("a third leads", |lab| lab.ensemble.leader().is_some());
        assert!(others.contains(&lab.ensemble.leader().unwrap()));
        assert_eq!(lab.ensemble.nodes(), [""; 0]);
    }
}

#[test]
fn nobody_follows_a_leader_that_has_been_replaced() {
    let slow = EnsembleConfig {
        tick: ms(2000),
        sync_limit: 2,
        election: ms(1)..=ms(1),
        ..config()
    };
    for seed in 0..10 {
        let mut lab = Lab::new(slow.clone(), seed);
        let (leader, _) = lab.roles();
        let time = ms(20_000);
        lab.fault(Fault::Pause {
            server: leader,
            time,
        });
        lab.run_to(ms(19_980));
        let next = lab.ensemble.leader().unwrap();
        let third = 3 - leader - next;
        let client = lab.client(next, ms(10_000));
        lab.create(client.connection, "/a", CreateMode::Persistent);
        lab.fault(Fault::Crash { server: third });
        lab.run_to(time);
        // The old leader is back, and has not yet seen that it has no quorum.
        lab.fault(Fault::Restart { server: third });
        lab.run_for(ms(10));
        let seeing = lab.client(third, ms(10_000));
        let seen = lab.code(seeing.connection, &Request::exists("/a"));
        assert_eq!(seen, ErrorCode::OK, "{seed}");
        lab.run_for(ms(5000));
        assert_eq!(lab.ensemble.leader(), Some(next));
        assert!(!lab.is_closed(client.connection), "{seed}");
    }
}

#[test]
fn a_new_leader_refreshes_the_sessions_and_all_connections_end() {
    let mut lab = Lab::new(config(), 4);
    let (_, followers) = lab.roles();
    let clients: Vec<_> = (0..3).map(|server| lab.client(server, LONG)).collect();
    lab.create(clients[0].connection, "/mine", CreateMode::Ephemeral);
    lab.run_for(ms(1700));
    lab.fault(Fault::ChangeLeader { to: followers[1] });
    lab.run_for(ms(5));
    for client in &clients {
        assert!(lab.is_closed(client.connection));
    }
    lab.until("another leads", |lab| lab.ensemble.leader().is_some());
    assert_eq!(lab.ensemble.leader(), Some(followers[1]));
    let elected = lab.now;
    lab.until("the sessions end", |lab| lab.ensemble.sessions().is_empty());
    let lived = lab.now - elected;
    assert!(LONG <= lived && lived <= LONG + ms(110), "{lived:?}");
    assert!(lab.ensemble.nodes().is_empty());
}

#[test]
fn a_crash_ends_the_connections_and_loses_nothing_that_was_committed() {
    for seed in 0..10 {
        let mut lab = Lab::new(config(), seed);
        let (leader, followers) = lab.roles();
        let client = lab.client(leader, LONG);
        lab.create(client.connection, "/a", CreateMode::Persistent);
        lab.fault(Fault::Crash { server: leader });
        assert!(lab.is_closed(client.connection));
        assert_eq!(lab.ensemble.accept(lab.now, leader), None);
        lab.until("another leads", |lab| lab.ensemble.leader().is_some());
        lab.run_for(ms(10));
        let again = lab.meet(lab.ensemble.leader().unwrap(), &client.again());
        let again = again.unwrap();
        assert_eq!(lab.code(again.connection, &check("/a")), ErrorCode::OK);
        lab.fault(Fault::Restart { server: leader });
        lab.run_for(ms(1200));
        let back = lab.meet(leader, &client.again()).unwrap();
        assert_eq!(lab.code(back.connection, &check("/a")), ErrorCode::OK);
        assert_eq!(lab.ensemble.leader().unwrap_or(leader), lab.roles().0);
        assert!(followers.contains(&lab.roles().0));
    }
}

#[test]
fn without_a_quorum_nobody_serves() {
    let mut lab = Lab::new(config(), 5);
    let (leader, followers) = lab.roles();
    let client = lab.client(leader, LONG);
    for server in &followers {
        lab.fault(Fault::Crash { server: *server });
    }
    lab.run_for(ms(300));
    assert!(lab.is_closed(client.connection));
    lab.run_for(ms(5000));
    assert_eq!(lab.ensemble.leader(), None);
    // The session does not end while nobody can end it.
    assert!(lab.is_alive(client.session()));
    lab.fault(Fault::Restart {
        server: followers[0],
    });
    lab.until("one leads", |lab| lab.ensemble.leader().is_some());
    lab.run_for(ms(5));
    assert!(lab.meet(leader, &client.again()).is_some());
}

#[test]
fn a_server_by_itself_is_its_own_quorum() {
    let alone = EnsembleConfig {
        servers: 1,
        ..config()
    };
    let mut lab = Lab::new(alone, 6);
    let client = lab.client(0, ms(300));
    lab.create(client.connection, "/a", CreateMode::Ephemeral);
    lab.fault(Fault::Cut { server: 0 });
    assert_eq!(lab.code(client.connection, &check("/a")), ErrorCode::OK);
    lab.fault(Fault::Crash { server: 0 });
    lab.fault(Fault::Restart { server: 0 });
    lab.run_for(ms(1010));
    let client = lab.meet(0, &client.again()).unwrap();
    assert_eq!(lab.code(client.connection, &check("/a")), ErrorCode::OK);
    lab.run_for(ms(500));
    assert!(lab.is_closed(client.connection));
    assert!(lab.ensemble.nodes().is_empty());
}

#[test]
fn a_paused_server_does_later_what_it_has_missed() {
    let mut lab = Lab::new(config(), 7);
    let (_, followers) = lab.roles();
    let client = lab.client(followers[0], LONG);
    lab.fault(Fault::Pause {
        server: followers[0],
        time: ms(200),
    });
    let began = lab.now;
    lab.create(client.connection, "/a", CreateMode::Persistent);
    assert!(ms(200) <= lab.now - began);
}

#[test]
fn a_paused_leader_is_replaced_and_comes_back_as_a_follower() {
    let mut lab = Lab::new(config(), 8);
    let (leader, others) = lab.roles();
    lab.fault(Fault::Pause {
        server: leader,
        time: ms(4000),
    });
    lab.run_for(ms(3000));
    let next = lab.ensemble.leader().unwrap();
    assert!(others.contains(&next));
    let client = lab.client(next, LONG);
    lab.create(client.connection, "/a", CreateMode::Persistent);
    lab.run_for(ms(4000));
    let client = lab.client(leader, LONG);
    assert_eq!(lab.code(client.connection, &check("/a")), ErrorCode::OK);
    assert_eq!(lab.ensemble.leader(), Some(next));
}

#[test]
fn a_server_that_refuses_keeps_the_connections_it_has() {
    let mut lab = Lab::new(config(), 9);
    let client = lab.client(0, LONG);
    lab.fault(Fault::Refuse {
        server: 0,
        on: true,
    });
    assert_eq!(lab.ensemble.accept(lab.now, 0), None);
    assert_eq!(lab.code(client.connection, &Request::Ping), ErrorCode::OK);
    lab.fault(Fault::Refuse {
        server: 0,
        on: false,
    });
    lab.client(0, LONG);
}
