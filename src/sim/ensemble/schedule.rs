//! Does what is due, and sends and delivers messages.

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
            Event::Deliver { link, towards } => self.links.get(link)?.receiver(*towards),
            Event::Round { server, .. }
            | Event::Ping { server, .. }
            | Event::Tick { server, .. }
            | Event::Expire { server, .. }
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
            Event::Deliver { link, towards } => self.deliver(link, towards),
            Event::Round { server, life } if self.is_life(server, life) => self.round(server),
            Event::Ping { server, link } => self.ping(server, link),
            Event::Tick { server, life } if self.is_life(server, life) => self.tick(server),
            Event::Expire {
                server,
                life,
                session,
            } if self.is_life(server, life) => self.expire(server, session),
            Event::CheckContainers { server, life } if self.is_life(server, life) => {
                self.check_containers(server);
            }
            Event::Apply { server, life } if self.is_life(server, life) => self.apply_due(server),
            Event::Limit { server, life } if self.is_life(server, life) => self.lose_leader(server),
            Event::Look { server, life } if self.is_life(server, life) => self.look(server),
            Event::Handshake { connection } => self.end_if_new(connection),
            Event::Input { connection, bytes } => self.input(connection, bytes),
            // An event of an earlier life.
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
        let queue = end.queue(towards);
        // No message overtakes an earlier one.
        let arrival = queue.back().map_or(arrival, |(last, _)| arrival.max(*last));
        queue.push_back((arrival, message));
        self.agenda.add(arrival, Event::Deliver { link, towards });
    }

    /// Delivers what has arrived, unless the link is cut.
    fn deliver(&mut self, link: LinkNo, towards: Towards) {
        while let Some(message) = self.next_message(link, towards) {
            self.hand_over(link, towards, message);
        }
    }

    fn next_message(&mut self, link: LinkNo, towards: Towards) -> Option<Message> {
        let now = self.now;
        let end = self.links.get_mut(&link)?;
        let is_cut = |server: usize| self.servers[server].is_cut;
        if is_cut(end.leader) || is_cut(end.follower) {
            return None;
        }
        let first = end.queue(towards).pop_front_if(|(at, _)| *at <= now)?;
        Some(first.1)
    }

    /// Plans to deliver what has waited for the end of a cut.
    pub(super) fn release_later(&mut self, server: usize) {
        let ends = |link: &Link| link.leader == server || link.follower == server;
        let links = self.links.iter().filter(|(_, link)| ends(link));
        let links: Vec<_> = links.map(|(number, _)| *number).collect();
        for link in links {
            for towards in [Towards::Leader, Towards::Follower] {
                let hop = self.hop();
                self.after(hop, Event::Deliver { link, towards });
            }
        }
    }

    fn hand_over(&mut self, link: LinkNo, towards: Towards, message: Message) {
        let Some(end) = self.links.get(&link) else {
            return;
        };
        let (leader, follower) = (end.leader, end.follower);
        match towards {
            Towards::Leader if self.has_member(leader, follower, link) => {
                self.at_leader(leader, follower, message);
            }
            Towards::Follower if self.follows(follower, link) => {
                self.at_follower(follower, message);
            }
            // The receiver has left this connection; nothing follows a reset.
            _ if matches!(message, Message::Reset) => drop(self.links.remove(&link)),
            _ => {}
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
