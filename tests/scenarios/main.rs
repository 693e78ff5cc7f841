//! Scenarios over the whole workspace: real servers, real processes, real networks. One binary, since linking
//! takes longer than most of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod after;
mod client;
mod cluster;
mod commands;
mod companions;
mod conformance;
mod cordon;
mod dashboard;
mod displays;
mod doctor;
mod elastic;
mod flow;
mod instances;
mod json;
mod kinds;
mod labels;
mod large_data;
mod ledger;
mod lists;
mod models;
mod notices;
mod observe;
mod partitions;
mod published;
mod published_on_a_cluster;
mod reconnect;
mod scale;
mod reports;
mod routine_calls;
mod routine_checkpoints;
mod routine_clients;
mod routine_here;
mod routine_languages;
mod routine_library;
mod routine_reductions;
mod routine_resources;
mod routine_searches;
mod routine_site;
mod routines;
mod set_aside;
mod shares;
mod spawn;
mod state;
mod stuck;
mod tls;
mod top;
mod tsp_answers;
mod tsp_counts;
mod up;
mod workflow_state;
mod workflow_views;
mod workflows;
mod wrong;
