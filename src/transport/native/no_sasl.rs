//! Stands in for `sasl` in a build without it: its type has no values.

use std::sync::Arc;

use super::channel::Channel;
use super::end::End;
use super::hosts::Target;
use super::inbox::Inbox;
use super::shared::Shared;
use crate::time::clock::Moment;

#[derive(Clone, Debug)]
pub(crate) enum Login {}

pub(super) fn log_in(
    login: &Login,
    _shared: &Shared,
    _channel: &Arc<Channel>,
    _inbox: &mut Inbox,
    _target: &Target,
    _deadline: Moment,
) -> Result<(), End> {
    match *login {}
}
