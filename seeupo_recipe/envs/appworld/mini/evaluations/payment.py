def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    user = models.end.venmo.User.find_one(email=main_user.email)
    added, updated, removed = models.changed_records("venmo.Transaction")
    sent = [(transaction.sender_id, transaction.receiver_id, transaction.amount) for transaction in added]
    asked = (user.id, private_data.id, private_data.amount)
    with test("assert the money is sent."):
        test.case(asked, "in", sent)
    with test("assert the task is marked complete and nothing else has changed."):
        test.case(models.end.supervisor.Task.first().status, "==", "success")
        test.case(sent, "==", [asked])
        test.case(len(updated) + len(removed), "==", 0)
        test.case(models.changed_model_names(), "==", {"venmo.Transaction", "venmo.User", "venmo.Notification"})
        added, updated, removed = models.changed_records("venmo.User")
        test.case({record.id for record in updated}, "==", {user.id, private_data.id})
        test.case(user.venmo_balance, "==", private_data.balance)
        test.case(len(added) + len(removed), "==", 0)
