"""Attribution: assigns every billed token of a rail to a cause. In tokens only; `pricing` has the prices."""
