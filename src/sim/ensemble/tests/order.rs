//! What a client sees, and in which order.

use super::lab::{Heard, Lab, check, config, create, delete, ms, open_acl, sync, watch};
use crate::sim::ensemble::{Change, Fault, Output, SessionEnd, What};
use zklock_jute::{ConnectRequest, CreateMode, ErrorCode, EventKind, Reply, Request};

const LONG: std::time::Duration = ms(2000);

#[test]
fn a_change_is_seen_through_every_server_with_its_own_zxid() {
    let mut lab = Lab::new(config(), 1);
    for server in 0..3 {
        let client = lab.client(server, LONG);
        let path = format!("/from-{server}");
        let (header, reply) = lab
            .call(client.connection, &create(&path, CreateMode::Persistent))
            .unwrap();
        assert_eq!(reply, Some(Reply::Created { path, stat: None }));
        let read = lab.call(client.connection, &Request::list("/")).unwrap();
        assert_eq!(read.0.zxid, header.zxid);
    }
    lab.run_for(ms(10));
    let nodes = ["/from-0", "/from-1", "/from-2"];
    assert_eq!(lab.ensemble.nodes(), nodes);
    for server in 0..3 {
        let client = lab.client(server, LONG);
        assert_eq!(lab.list(client.connection, "/").len(), 4);
    }
}

#[test]
fn a_later_read_waits_for_an_earlier_write_of_its_client() {
    let mut lab = Lab::new(config(), 2);
    let (_, followers) = lab.roles();
    let client = lab.client(followers[0], LONG);
    let write = lab.ask(client.connection, &create("/a", CreateMode::Persistent));
    let read = lab.ask(client.connection, &Request::exists("/a"));
    let ping = lab.ask(client.connection, &Request::Ping);
    assert_eq!(lab.heard(client.connection).len(), 1);
    lab.run_for(ms(50));
    let answers: Vec<_> = lab.heard(client.connection).into_iter().skip(1).collect();
    let headers = answers.iter().map(|heard| match heard {
        Heard::Reply(header, _) => (header.xid, header.code),
        other => panic!("{other:?}"),
    });
    let ok = ErrorCode::OK;
    assert_eq!(
        headers.collect::<Vec<_>>(),
        [(write, ok), (read, ok), (ping, ok)]
    );
}

#[test]
fn an_event_comes_before_any_answer_that_shows_the_change() {
    for seed in 0..20 {
        let mut lab = Lab::new(config(), seed);
        let watcher = lab.client(0, LONG);
        let other = lab.client(1, LONG);
        lab.create(other.connection, "/a", CreateMode::Persistent);
        assert_eq!(lab.code(watcher.connection, &sync("/")), ErrorCode::OK);
        lab.code(watcher.connection, &watch("/a"));
        let before = lab.heard(watcher.connection).len();
        lab.ask(other.connection, &delete("/a"));
        lab.ask(watcher.connection, &sync("/"));
        lab.ask(watcher.connection, &Request::exists("/a"));
        lab.run_for(ms(50));
        let heard = &lab.heard(watcher.connection)[before..];
        let gone = Heard::Event(EventKind::Deleted, "/a".to_owned());
        let event = heard.iter().position(|heard| *heard == gone).unwrap();
        let shown = heard.iter().position(|heard| match heard {
            Heard::Reply(header, _) => header.code == ErrorCode::NO_NODE,
            _ => false,
        });
        assert!(shown.is_none_or(|shown| event < shown), "{heard:?}");
    }
}

#[test]
fn an_event_comes_before_the_answer_to_whoever_made_the_change() {
    for server in 0..3 {
        let mut lab = Lab::new(config(), 12);
        let client = lab.client(server, LONG);
        lab.create(client.connection, "/a", CreateMode::Persistent);
        lab.code(client.connection, &watch("/a"));
        lab.code(client.connection, &delete("/a"));
        let gone = Heard::Event(EventKind::Deleted, "/a".to_owned());
        let heard = lab.heard(client.connection);
        assert_eq!(heard[heard.len() - 2], gone, "{heard:?}");
    }
}

#[test]
fn a_ghost_is_seen_through_its_server_alone() {
    let mut lab = Lab::new(config(), 13);
    let (_, followers) = lab.roles();
    let [haunted, sane] = followers[..] else {
        panic!("there are two");
    };
    let (blind, seeing) = (lab.client(haunted, LONG), lab.client(sane, LONG));
    let path = "/mine".to_owned();
    lab.create(seeing.connection, &path, CreateMode::Ephemeral);
    lab.code(blind.connection, &sync("/"));
    lab.code(blind.connection, &watch(&path));
    let server = haunted;
    lab.fault(Fault::Ghost {
        server,
        path: path.clone(),
    });
    lab.code(seeing.connection, &Request::Close);
    lab.code(blind.connection, &sync("/"));
    assert_eq!(
        lab.code(blind.connection, &Request::exists(&path)),
        ErrorCode::OK
    );
    // The leader decides the result of a change.
    assert_eq!(
        lab.code(blind.connection, &delete(&path)),
        ErrorCode::NO_NODE
    );
    assert_eq!(
        lab.code(blind.connection, &Request::exists(&path)),
        ErrorCode::OK
    );
    let is_event = |heard: &Heard| matches!(heard, Heard::Event(..));
    assert!(!lab.heard(blind.connection).iter().any(is_event));
    assert!(lab.ensemble.nodes().is_empty());
}

#[test]
fn what_a_leader_made_on_the_strength_of_a_ghost_goes_when_its_data_are_built_anew() {
    let mut lab = Lab::new(config(), 13);
    let (leader, _) = lab.roles();
    let client = lab.client(leader, LONG);
    lab.create(client.connection, "/kept", CreateMode::Persistent);
    lab.fault(Fault::Ghost {
        server: leader,
        path: "/kept".to_owned(),
    });
    assert_eq!(lab.code(client.connection, &delete("/kept")), ErrorCode::OK);
    let again = Request::Delete {
        path: "/kept".to_owned(),
        version: -1,
    };
    let made = Request::Create {
        path: "/made".to_owned(),
        data: Vec::new().into(),
        acl: open_acl(),
        mode: CreateMode::Persistent,
        stat: false,
    };
    let both = Request::Multi(vec![again, made]);
    assert_eq!(lab.code(client.connection, &both), ErrorCode::OK);
    lab.fault(Fault::Rebuild { server: leader });
    let ends = |what: &What| matches!(what, What::Deleted { path, .. } if path == "/made");
    let history = lab.ensemble.history();
    assert!(
        history.iter().any(|change| ends(&change.what)),
        "{history:#?}"
    );
}

#[test]
fn a_follower_that_lags_shows_the_past_until_it_is_synced() {
    let mut lab = Lab::new(config(), 3);
    let (leader, followers) = lab.roles();
    let behind = lab.client(followers[0], LONG);
    let ahead = lab.client(leader, LONG);
    lab.fault(Fault::Lag {
        server: followers[0],
        by: ms(300),
    });
    lab.create(ahead.connection, "/a", CreateMode::Persistent);
    lab.run_for(ms(50));
    let (header, _) = lab.call(behind.connection, &Request::exists("/a")).unwrap();
    assert_eq!(header.code, ErrorCode::NO_NODE);
    let began = lab.now;
    lab.code(behind.connection, &sync("/"));
    assert!(ms(200) < lab.now - began);
    assert_eq!(
        lab.code(behind.connection, &Request::exists("/a")),
        ErrorCode::OK
    );
    lab.create(ahead.connection, "/b", CreateMode::Persistent);
    lab.run_for(ms(50));
    assert_eq!(
        lab.code(behind.connection, &Request::exists("/b")),
        ErrorCode::NO_NODE
    );
    lab.fault(Fault::CatchUp {
        server: followers[0],
    });
    assert_eq!(
        lab.code(behind.connection, &Request::exists("/b")),
        ErrorCode::OK
    );
}

#[test]
fn a_client_that_has_seen_more_than_the_server_is_hung_up_on() {
    let mut lab = Lab::new(config(), 4);
    let (leader, followers) = lab.roles();
    let mut client = lab.client(leader, LONG);
    lab.fault(Fault::Lag {
        server: followers[0],
        by: ms(300),
    });
    let (header, _) = lab
        .call(client.connection, &create("/a", CreateMode::Persistent))
        .unwrap();
    lab.run_for(ms(50));
    let again = ConnectRequest {
        last_zxid: header.zxid,
        ..client.again()
    };
    assert!(lab.meet(followers[0], &again).is_none());
    client = lab.meet(followers[1], &again).unwrap();
    assert_eq!(lab.code(client.connection, &check("/a")), ErrorCode::OK);
}

#[test]
fn the_history_tells_what_was_committed() {
    let mut lab = Lab::new(config(), 11);
    let client = lab.client(1, LONG);
    let session = client.session();
    let path = lab.create(client.connection, "/e-", CreateMode::EphemeralSequential);
    assert_eq!(lab.code(client.connection, &Request::Close), ErrorCode::OK);
    assert!(lab.is_closed(client.connection));
    let history = lab.ensemble.history();
    let what: Vec<_> = history
        .iter()
        .skip(1)
        .map(|change| change.what.clone())
        .collect();
    let expected = [
        What::SessionBegan {
            session,
            timeout: LONG,
        },
        What::Created {
            path: path.clone(),
            owner: session,
            data: Vec::new(),
        },
        What::Deleted {
            path,
            owner: session,
            by: session,
        },
        What::SessionEnded {
            session,
            why: SessionEnd::Closed,
        },
    ];
    assert_eq!(what, expected);
    let zxid = |change: &Change| change.zxid & 0xffff_ffff;
    let zxids: Vec<_> = history.iter().map(zxid).collect();
    assert_eq!(zxids, [0, 1, 2, 3, 3]);
}

/// A script with a bit of everything; returns what the clients were sent.
fn script(seed: u64) -> Vec<(std::time::Duration, u64, Output)> {
    let mut lab = Lab::new(config(), seed);
    let clients: Vec<_> = (0..6).map(|each| lab.client(each % 3, LONG)).collect();
    let mut chance = fastrand::Rng::with_seed(seed);
    for round in 0..60 {
        let client = &clients[chance.usize(..clients.len())];
        let open = !lab.is_closed(client.connection);
        if open {
            lab.ask(client.connection, &watch("/"));
            let path = format!("/n{}", round % 7);
            let requests = [
                create(&path, CreateMode::Ephemeral),
                delete(&path),
                sync("/"),
            ];
            lab.ask(client.connection, &requests[chance.usize(..3)]);
        }
        let server = chance.usize(..3);
        match round {
            20 => lab.fault(Fault::Lag { server, by: ms(40) }),
            30 => lab.fault(Fault::Cut { server }),
            40 => lab.fault(Fault::ChangeLeader { to: server }),
            50 => lab.fault(Fault::Crash { server }),
            _ => {}
        }
        lab.run_for(ms(chance.u64(0..30)));
    }
    lab.run_for(ms(5000));
    lab.sent
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 0..10 {
        assert_eq!(script(seed), script(seed));
    }
    assert_ne!(script(1), script(2));
}

#[test]
fn an_ensemble_may_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<crate::sim::ensemble::Ensemble>();
}
