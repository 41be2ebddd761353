//! What is due is done here, and messages are sent and delivered.

use std::time::Duration;

use super::message::{Link, LinkNo, Message, Towards};
use super::server::Role;
use super::state::{Ensemble, Event};

impl Ensemble {
    /// Does all that is due.
    pub fn run_until(&mut self, now: Duration) {
        while let Some((at, number, event)) = self.agenda.pop(now) {
            self.now = self.now.max(at);
            match self.busy_until(&event) {
                Some(until) => self.agenda.put_off(until, number, event),
                None => self.happen(event),
            }
        }
        self.now = self.now.max(now);
    }

    /// Returns until when the server of an event is paused.
    fn busy_until(&self, event: &Event) -> Option<Duration> {
        let server = match event {
            Event::Deliver { link, towards, .. } => self.links.get(link)?.receiver(*towards),
            Event::Round { server, .. }
            | Event::Ping { server, .. }
            | Event::Tick { server, .. }
            | Event::CheckContainers { server, .. }
            | Event::Apply { server, .. }
            | Event::Limit { server, .. }
            | Event::Look { server, .. } => *server,
            Event::Handshake { connection } | Event::Input { connection, .. } => {
                self.connections.get(connection)?.server
            }
        };
        let until = self.servers[server].paused_until;
        (self.now < until).then_some(until)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver {
                link,
                towards,
                message,
            } => self.deliver(link, towards, message),
            Event::Round { server, life } if self.is_life(server, life) => self.round(server),
            Event::Ping { server, link } => self.ping(server, link),
            Event::Tick { server, life } if self.is_life(server, life) => self.tick(server),
            Event::CheckContainers { server, life } if self.is_life(server, life) => {
                self.check_containers(server);
            }
            Event::Apply { server, life } if self.is_life(server, life) => self.apply_due(server),
            Event::Limit { server, life } if self.is_life(server, life) => self.lose_leader(server),
            Event::Look { server, life } if self.is_life(server, life) => self.look(server),
            Event::Handshake { connection } => self.end_if_new(connection),
            Event::Input { connection, bytes } => self.input(connection, bytes),
            // Of an earlier life.
            _ => {}
        }
    }

    fn is_life(&self, server: usize, life: u64) -> bool {
        self.servers[server].life == life
    }

    /// Plans an event of a server's present life.
    pub(super) fn plan(
        &mut self,
        server: usize,
        time: Duration,
        event: impl FnOnce(usize, u64) -> Event,
    ) {
        let life = self.servers[server].life;
        self.after(time, event(server, life));
    }
}

// Messages.
impl Ensemble {
    /// Connects a follower to its leader.
    pub(super) fn connect_servers(&mut self, leader: usize, follower: usize) -> LinkNo {
        self.latest_link += 1;
        self.links
            .insert(self.latest_link, Link::new(leader, follower));
        self.latest_link
    }

    pub(super) fn send(&mut self, link: LinkNo, towards: Towards, message: Message) {
        let arrival = self.now + self.hop();
        let Some(end) = self.links.get_mut(&link) else {
            return;
        };
        // What was sent later does not come earlier.
        let last = end.last_mut(towards);
        *last = arrival.max(*last);
        let event = Event::Deliver {
            link,
            towards,
            message,
        };
        self.agenda.add(*last, event);
    }

    fn deliver(&mut self, link: LinkNo, towards: Towards, message: Message) {
        let Some(end) = self.links.get_mut(&link) else {
            return;
        };
        let (leader, follower) = (end.leader, end.follower);
        if self.servers[leader].is_cut || self.servers[follower].is_cut {
            end.held.push((towards, message));
            return;
        }
        match towards {
            Towards::Leader if self.has_member(leader, follower, link) => {
                self.at_leader(leader, follower, message);
            }
            Towards::Follower if self.follows(follower, link) => {
                self.at_follower(follower, message)
            }
            // The receiver has left this connection; nothing follows a reset.
            _ if matches!(message, Message::Reset) => drop(self.links.remove(&link)),
            _ => {}
        }
    }

    /// Sends again what could not be delivered.
    pub(super) fn release_held(&mut self, server: usize) {
        let ends = |link: &Link| link.leader == server || link.follower == server;
        let links: Vec<_> = self.links.iter().filter(|(_, link)| ends(link)).collect();
        let links: Vec<_> = links.iter().map(|(number, _)| **number).collect();
        for number in links {
            let held = self.links.get_mut(&number).map(|link| &mut link.held);
            let held = held.map(std::mem::take).unwrap_or_default();
            for (towards, message) in held {
                self.send(number, towards, message);
            }
        }
    }

    fn has_member(&mut self, leader: usize, follower: usize, link: LinkNo) -> bool {
        let leading = self.servers[leader].leading();
        let member = leading.and_then(|leading| leading.members.get(&follower));
        member.is_some_and(|member| member.link == link)
    }

    fn follows(&mut self, follower: usize, link: LinkNo) -> bool {
        matches!(&self.servers[follower].role, Role::Following(each) if each.link == link)
    }
}
