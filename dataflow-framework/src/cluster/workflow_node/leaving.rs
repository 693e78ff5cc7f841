//! Nodes that leave, or that an operator has cordoned: they receive no more calls.

use taskwork::companion::Rescue;

use super::{Role, WorkflowNode};

impl WorkflowNode {
    /// Handles a cordon: the node receives no more calls until it is uncordoned.
    pub(in crate::cluster) fn on_cordon(&self, is_cordoned: bool) {
        let mut state = self.lock();
        state.is_cordoned = is_cordoned;
        // A leaving node receives no more calls anyway.
        let role = if state.is_leaving { Role::Idle } else { state.role.clone() };
        drop(state);
        match role {
            Role::Idle => {}
            Role::Follows(following) => following.cordon(is_cordoned),
            Role::Leads(leading) => leading.cordon(is_cordoned),
        }
    }

    /// Prepares for leaving: data that only this node has is copied to others; if the program is here, it
    /// stops, since its task moves to another node.
    pub(in crate::cluster) fn leave(&self, rescue: Rescue) {
        let mut state = self.lock();
        state.is_leaving = true;
        state.rescue = Some(rescue);
        let role = state.role.clone();
        drop(state);
        match role {
            Role::Idle => {}
            Role::Follows(following) => following.leave(),
            Role::Leads(leading) => {
                leading.leave();
                tracing::info!("this node leaves, and is given no more calls");
            }
        }
    }

    /// Lets the node leave if nothing more is needed from it.
    pub(super) fn go_if_possible(&self, role: &Role, now_ms: u64) {
        let may_go = match role {
            Role::Idle => true,
            Role::Follows(following) => following.may_go(),
            Role::Leads(leading) => leading.may_go(now_ms),
        };
        let rescue = if may_go { self.lock().rescue.take() } else { None };
        if let (Some(_), Role::Leads(leading)) = (&rescue, role) {
            leading.on_released();
        }
        drop(rescue);
    }
}
