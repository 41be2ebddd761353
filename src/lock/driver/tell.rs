//! How a waiting thread tells its user which contender it waits for.

use super::Driver;
use crate::error::Result;
use crate::lock::request::Ahead;
use crate::owner::Owner;
use zklock_core::queue::Blocked;

impl Driver<'_, '_> {
    /// Tells the user who is ahead, at first and whenever that changes.
    pub(super) fn tell_place(&mut self) -> Result<()> {
        let told = self.request.on_wait.is_some() || self.request.circles.is_some();
        if !told && !log::log_enabled!(log::Level::Info) {
            return Ok(());
        }
        let crowd = self.acquisition.crowd().map(|ahead| Blocked {
            ahead,
            ..Blocked::default()
        });
        match self.acquisition.blocked().cloned().or(crowd) {
            Some(blocked) => self.tell(&blocked),
            None => Ok(()),
        }
    }

    fn tell(&mut self, blocked: &Blocked) -> Result<()> {
        let place = (blocked.nearest.clone(), blocked.ahead);
        if self.told.as_ref() == Some(&place) {
            return Ok(());
        }
        self.told = Some(place);
        // The code from here on is the user's.
        self.wired.reading = None;
        if log::log_enabled!(log::Level::Info) {
            self.log_place(blocked);
        }
        let nearest = format!("{}/{}", self.queue.dir, blocked.nearest);
        if let Some(on_wait) = self.request.on_wait.as_mut() {
            let (data, stat) = self.acquisition.found();
            on_wait(&Ahead {
                since: self.request.limit.spent(),
                count: blocked.ahead,
                nearest: nearest.clone(),
                holds: blocked.holds,
                data: data.to_vec(),
                stat: *stat,
            });
        }
        match &self.request.circles {
            Some(look) => look(&nearest, self.request.several, &self.request.limit),
            None => Ok(()),
        }
    }

    fn log_place(&self, blocked: &Blocked) {
        let (path, ahead) = (self.queue.path, blocked.ahead);
        if blocked.nearest.is_empty() {
            return log::info!("waiting for a permit of {path}: {ahead} must be given back first");
        }
        let nearest = Owner::parse(&self.acquisition.found().0).named();
        let nearest = nearest.unwrap_or_else(|| blocked.nearest.clone());
        match blocked.holds && self.queue.dir == path {
            true => log::info!("waiting for the lock {path}, which {nearest} holds"),
            false => log::info!("waiting for the lock {path}: {ahead} ahead, then {nearest}"),
        }
    }
}
