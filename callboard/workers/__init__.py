"""Workers: one server in several processes that share its addresses. Any request may reach any of them."""
