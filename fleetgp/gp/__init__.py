"""The hierarchical Gaussian process in weight space: statistics, messages, aggregation and posterior.

Each channel q of agent i: target = F (v_q + d_iq) + noise, v ~ N(0, I) shared by the fleet, d ~ N(0, diag(phi)) the agent's
own deviation, noise ~ N(0, s2_q). The target is the step from the last reading, so that the prior mean is persistence.
With one feature map for both layers w = v + d is all a prediction needs (models.md sections 2 to 4, linear block).
"""
