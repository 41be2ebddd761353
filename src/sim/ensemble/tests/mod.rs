//! A scripted client, frame by frame, against the ensemble.

mod bound;
mod lab;
mod order;
mod requests;
mod servers;
mod sessions;
mod storm;
