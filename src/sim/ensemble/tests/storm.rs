//! Everything goes wrong at random, and afterwards the servers agree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::lab::{Client, Lab, check, config, create, delete, ms, sync, watch};
use crate::sim::ensemble::{EnsembleConfig, Fault, What};
use zklock_jute::{ConnectRequest, CreateMode, ErrorCode, Request};

/// Clients that come back where they can, and a dozen faults.
struct Storm {
    lab: Lab,
    chance: fastrand::Rng,
    clients: Vec<Option<Client>>,
}

impl Storm {
    fn new(servers: usize, seed: u64) -> Self {
        let config = EnsembleConfig {
            servers,
            ..config()
        };
        Self {
            lab: Lab::new(config, seed),
            chance: fastrand::Rng::with_seed(seed),
            clients: vec![None; 4],
        }
    }

    fn server(&mut self) -> usize {
        self.chance.usize(..self.lab.ensemble.servers.len())
    }

    fn time(&mut self, most: u64) -> Duration {
        ms(self.chance.u64(0..=most))
    }

    fn disturb(&mut self) {
        let server = self.server();
        let by = self.time(400);
        let path = format!("/n{}", self.chance.u8(..4));
        let session = self.lab.ensemble.sessions().first().copied();
        let fault = match self.chance.u8(..14) {
            0 => Fault::Cut { server },
            1 | 2 => Fault::Heal { server },
            3 => Fault::Lag { server, by },
            4 => Fault::CatchUp { server },
            5 => Fault::Crash { server },
            6 | 7 => Fault::Restart { server },
            8 => Fault::Pause {
                server,
                time: by * 3,
            },
            9 => Fault::ChangeLeader { to: server },
            10 => Fault::Evict { path },
            11 => Fault::Revoke { path },
            12 => Fault::LatePings { by },
            _ => match session {
                Some(session) if self.chance.bool() => Fault::Expire { session },
                _ => Fault::LoseNextReply { kind: None },
            },
        };
        self.lab.fault(fault);
    }

    /// Has a client send something, or try to come back.
    fn act(&mut self) {
        let number = self.chance.usize(..self.clients.len());
        let path = format!("/n{}", self.chance.u8(..4));
        let Some(client) = self.clients[number].clone() else {
            self.clients[number] = self.come(None);
            return;
        };
        if self.lab.is_closed(client.connection) {
            self.clients[number] = self.come(Some(&client));
            return;
        }
        let request = match self.chance.u8(..8) {
            0 => create(&path, CreateMode::Persistent),
            1 | 2 => create(&path, CreateMode::Ephemeral),
            3 => delete(&path),
            4 => watch(&path),
            5 => sync("/"),
            6 => check(&path),
            _ => Request::Ping,
        };
        self.lab.ask(client.connection, &request);
    }

    /// Connects somewhere, without waiting for what never comes.
    fn come(&mut self, former: Option<&Client>) -> Option<Client> {
        let server = self.server();
        let connection = self.lab.ensemble.accept(self.lab.now, server)?;
        let fresh = super::lab::new_session(ms(600));
        let request = former.map_or(fresh, Client::again);
        self.lab.welcome(connection);
        self.lab.greet(connection, &request);
        let wait = self.time(20);
        self.lab.run_for(wait);
        let greeted = self.lab.greeting(connection);
        if greeted.is_none() {
            self.lab.ensemble.hang_up(self.lab.now, connection);
        }
        greeted
    }

    fn calm_down(&mut self) {
        self.lab.fault(Fault::Calm);
        self.lab.run_for(ms(10_000));
    }
}

/// What the history leaves behind, and the sessions that it leaves alive.
fn replay(lab: &Lab) -> (Vec<String>, Vec<i64>) {
    let (mut nodes, mut sessions) = (BTreeMap::new(), BTreeSet::new());
    let mut last = (0, Duration::ZERO);
    for change in lab.ensemble.history() {
        assert!(last.0 <= change.zxid && last.1 <= change.at, "{change:?}");
        last = (change.zxid, change.at);
        match &change.what {
            What::Created { path, owner, .. } => {
                assert!(*owner == 0 || sessions.contains(owner), "{change:?}");
                assert_eq!(nodes.insert(path.clone(), *owner), None, "{change:?}");
            }
            What::Deleted { path, owner, .. } => {
                assert_eq!(nodes.remove(path), Some(*owner), "{change:?}");
            }
            What::Set { path, .. } => assert!(nodes.contains_key(path), "{change:?}"),
            What::SessionBegan { session, .. } => assert!(sessions.insert(*session)),
            What::SessionEnded { session, .. } => {
                assert!(sessions.remove(session), "{change:?}");
                assert!(!nodes.values().any(|owner| owner == session), "{change:?}");
            }
            What::LeaderElected { .. } => {}
        }
    }
    (nodes.into_keys().collect(), sessions.into_iter().collect())
}

#[test]
fn after_a_storm_the_servers_agree_and_the_history_tells_why() {
    for seed in 0..150 {
        let mut storm = Storm::new([1, 3, 5][usize::try_from(seed % 3).unwrap()], seed);
        for _ in 0..200 {
            storm.act();
            if storm.chance.u8(..6) == 0 {
                storm.disturb();
            }
            let pause = storm.time(60);
            storm.lab.run_for(pause);
        }
        storm.calm_down();
        let lab = &mut storm.lab;
        assert!(lab.ensemble.sessions().is_empty(), "seed {seed}");
        assert!(lab.ensemble.leader().is_some(), "seed {seed}");
        let (nodes, sessions) = replay(lab);
        assert_eq!((lab.ensemble.nodes(), sessions), (nodes.clone(), vec![]));
        for server in 0..lab.ensemble.servers.len() {
            let client = lab.client(server, ms(600));
            let mut seen = lab.list(client.connection, "/");
            seen.retain(|name| name != "zookeeper");
            let seen: Vec<_> = seen.iter().map(|name| format!("/{name}")).collect();
            assert_eq!(seen, nodes, "seed {seed}, server {server}");
            let exists = create("/new", CreateMode::Ephemeral);
            assert_eq!(lab.code(client.connection, &exists), ErrorCode::OK);
            assert_eq!(lab.code(client.connection, &Request::Close), ErrorCode::OK);
        }
        lab.run_for(ms(1000));
        assert_eq!(lab.ensemble.watch_count(), 0, "seed {seed}");
        assert!(lab.ensemble.links.len() < lab.ensemble.servers.len());
    }
}

#[test]
fn random_bytes_end_at_most_their_connection() {
    let mut lab = Lab::new(config(), 1);
    let mut chance = fastrand::Rng::with_seed(1);
    let client = lab.client(0, ms(2000));
    lab.create(client.connection, "/mine", CreateMode::Ephemeral);
    for round in 0..2000_u32 {
        let connection = lab.dial(chance.usize(..3));
        let mut noise = vec![0; chance.usize(..80)];
        chance.fill(&mut noise);
        let mut bytes = Vec::new();
        if chance.bool() {
            let again = ConnectRequest {
                last_zxid: 0,
                ..super::lab::new_session(ms(300))
            };
            again.encode(&mut bytes);
        }
        if chance.bool() {
            let length = u32::try_from(noise.len()).unwrap();
            bytes.extend(length.to_be_bytes());
        }
        bytes.extend(noise);
        lab.ensemble.receive(lab.now, connection, &bytes);
        lab.ensemble.run_until(lab.now);
        lab.now += ms(1);
        lab.ensemble.hang_up(lab.now, connection);
        // Ignored: it may be anything.
        lab.ensemble.take_output();
        if round % 100 == 0 {
            lab.ask(client.connection, &Request::Ping);
        }
    }
    assert_eq!(lab.ensemble.connection_count(), 1);
    assert_eq!(lab.code(client.connection, &check("/mine")), ErrorCode::OK);
}
